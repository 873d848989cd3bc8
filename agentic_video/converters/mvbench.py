"""MVBench: a json array a task with the answer as a text; the task says in which folder a video lies."""

from pathlib import PurePosixPath

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

FOLDERS = {
    "action_antonym": ("ssv2_video", "ssv2_video_mp4"),
    "action_count": ("perception/videos",),
    "action_localization": ("sta/sta_video_segment", "sta/sta_video"),
    "action_prediction": ("star/Charades_segment", "star/Charades_v1_480"),
    "action_sequence": ("star/Charades_segment", "star/Charades_v1_480"),
    "character_order": ("perception/videos",),
    "counterfactual_inference": ("clevrer/video_validation",),
    "egocentric_navigation": ("vlnqa",),
    "episodic_reasoning": ("tvqa/video_fps3_hq_segment", "tvqa/frames_fps3_hq"),
    "fine_grained_action": ("Moments_in_Time_Raw/videos",),
    "fine_grained_pose": ("nturgbd_convert", "nturgbd"),
    "moving_attribute": ("clevrer/video_validation",),
    "moving_count": ("clevrer/video_validation",),
    "moving_direction": ("clevrer/video_validation",),
    "object_existence": ("clevrer/video_validation",),
    "object_interaction": ("star/Charades_segment", "star/Charades_v1_480"),
    "object_shuffle": ("perception/videos",),
    "scene_transition": ("scene_qa/video",),
    "state_change": ("perception/videos",),
    "unexpected_action": ("FunQA_test/test",),
}
"""The 20 tasks; folders of cut videos come first, because questions with start and end are about a stretch."""


def convert(row: Fields, split: str) -> Questions:
    path = PurePosixPath(row.file)
    task = next((name for name in (path.stem, path.parent.name) if name in FOLDERS), "")
    if not task:
        raise row.error("video", f"belongs to no task: {row.file} is not named after one of the 20 tasks")
    options, name = row.options("candidates"), row.text("video")
    yield Question(
        id=f"{task}-{row.number}",  # not published
        videos=tuple(f"{folder}/{name}" for folder in FOLDERS[task]),
        question=row.text("question"),
        options=options,
        answer=row.gold("answer", "text", options),
        extra={
            "category": task,
            "video_name": name,
            "start": row.number_of("start") if row.has("start") else None,
            "end": row.number_of("end") if row.has("end") else None,
        },
        exact_video=True,
    )


CONVERTER = Converter(
    name="mvbench",
    title="MVBench",
    licence="MIT (annotations)",
    source="Hugging Face: OpenGVLab/MVBench",
    files="json/*.json, named after the 20 tasks",
    videos="video/*.zip, unpacked (star/, clevrer/, ...); prefer the cut videos of the branch `video`",
    splits={"test": Split(("json/*.json", "*.json", "*/*.parquet"), rows=4_000)},
    convert=convert,
)
