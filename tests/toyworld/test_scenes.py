import asyncio

from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.world import Renderer, WorldRecipe, make_scene

RECIPE = WorldRecipe(mixture=(("beside", 1.0),))


def test_a_scene_is_a_video_of_its_length() -> None:
    scene = make_scene(5, RECIPE)
    source = SceneSource({path_of(scene): scene}, RECIPE)
    info = source.facts("scene:5")
    assert (info.fps, info.num_frames, info.duration) == (10.0, scene.seconds * 10, float(scene.seconds))
    (frame,) = source.draw("scene:5", source.indices_at("scene:5", [12.34]), None)
    assert (frame.index, frame.time) == (123, 12.3)
    assert (frame.image == Renderer(scene, RECIPE).frame(123)).all()
    (small,) = source.draw("scene:5", [0], (28, 14))
    assert small.image.shape == (14, 28, 3)


def test_a_frame_is_found_by_the_colours_that_it_shows() -> None:
    scene = make_scene(5, RECIPE)
    source = SceneSource({path_of(scene): scene}, RECIPE)
    assert scene.event_time is not None
    event = round(scene.event_time * RECIPE.fps)
    assert asyncio.run(source.asimilarities("scene:5", [event, 0], f"the {scene.beside} one")) == [1.0, 0.0]
    assert asyncio.run(source.asimilarities("scene:5", [event], "the mark")) == [0.0]
    relevance, alike = asyncio.run(source.acompare("scene:5", [event, 0, event], f"the {scene.beside} one"))
    assert relevance.tolist() == [1.0, 0.0, 1.0]
    assert alike.tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
