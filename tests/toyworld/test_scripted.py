import asyncio

import pytest

from agentic_video.rollout.tokens import ChatFormat
from agentic_video.toyworld.build.scripted import ScriptedEpisode, Setting, play_script
from agentic_video.toyworld.questions import row_of
from agentic_video.toyworld.scenes import SceneSource, path_of
from agentic_video.toyworld.world import WorldRecipe, make_scene
from agentic_video.types.trajectory import EndReason

LOOK = '<think>x</think><video_zoom>{"segment": [12, 14], "fps": 2}</video_zoom>'
REPLY = "<think>x</think><answer>red</answer>"


def played(setting: Setting, chat_format: ChatFormat, *turns: str) -> ScriptedEpisode:
    recipe = WorldRecipe()
    scene = make_scene(0, recipe)
    source = SceneSource({path_of(scene): scene}, recipe)
    qa = row_of(scene, path_of(scene), "demonstrations")
    return asyncio.run(play_script(turns, qa, setting, chat_format, source, source, rollout_index=3))


def test_a_script_is_an_episode_with_ids(setting: Setting, tiny_chat_format: ChatFormat) -> None:
    episode = played(setting, tiny_chat_format, LOOK, REPLY)
    trajectory, (sequence,) = episode.trajectory, episode.sequences
    assert (trajectory.end, trajectory.answer, trajectory.rollout_index) == (EndReason.ANSWER, "red", 3)
    assert [turn.text for turn in trajectory.turns] == [LOOK, REPLY]
    marked = zip(sequence.response_ids, sequence.response_mask, strict=True)
    assert tiny_chat_format.decode([token for token, said in marked if said]).startswith(LOOK + REPLY)


def test_a_script_must_answer(setting: Setting, tiny_chat_format: ChatFormat) -> None:
    with pytest.raises(RuntimeError, match="a scripted episode of videozoomer ended with illegal"):
        played(setting, tiny_chat_format, "hm")
