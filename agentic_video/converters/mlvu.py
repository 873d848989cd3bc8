"""MLVU: a json array a task with the answer as a text, or rows with ``video_name`` and a letter, whose options stand
inside ``question`` and perhaps in ``candidates``, too (lmms-eval's copies).

Accuracy is the mean over the tasks (M-Avg), so ``extra_info.category`` holds the task. Video names repeat between the
tasks' folders: a video must lie in its task's folder.
"""

import re

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split

GENERATION = ("sub_scene", "summary", "subPlot")
_DEV = ("json/[1-9]_*.json", "[1-9]_*.json", "*dev*.parquet", "*.jsonl")
_TEST = ("test_mcq_gt.json", "*test*.parquet")


def convert(row: Fields, split: str) -> Questions:
    inlined = row.has("video_name")
    task = row.text("task_type" if inlined or not row.has("question_type") else "question_type")
    stem = row.stem
    if re.match(r"[1-9]_", stem):
        task = stem[2:]  # question_type has other spellings, e.g. findNeedle
    generated = task in GENERATION
    if generated != (split == "dev_generation"):
        return
    name = row.text("video_name" if inlined else "video")
    if generated:
        options: tuple[str, ...] = ()
        question, answer = row.text("question"), row.text("answer")
    elif inlined:
        question, options = row.question_and_options("question")
        if not options and row.has("candidates"):
            options = row.options("candidates")
        if not options:
            raise row.error("question", "holds no options A, B, ...")
        answer = row.gold("answer", "letter", options)
    else:
        # A blank distractor can't be shown; the gold is a text, so the others' letters may move.
        question, options = row.text("question"), row.options("candidates", drop_blank=True)
        answer = row.gold("answer", "text", options)
    in_folders = re.match(r"[1-9]_", stem) and "/" not in name
    yield Question(
        id=row.label("question_id", f"{stem}-{row.number}"),
        videos=(f"{stem}/{name}", f"{task}/{name}") if in_folders else (name,),
        question=question,
        options=options,
        answer=answer,
        extra={
            "category": task,
            "video_name": name,
            "duration": row.duration(),
        },
        exact_video=bool(in_folders),
    )


CONVERTER = Converter(
    name="mlvu",
    title="MLVU",
    licence="CC BY-NC-SA 4.0",
    source="Hugging Face: MLVU/MVLU (dev), MLVU/MLVU_Test (test)",
    files="json/1_plotQA.json .. 9_summary.json (dev), test-ground-truth/test_mcq_gt.json (test)",
    videos="video/, with the tasks' folders 1_plotQA .. 9_summary (dev)",
    splits={
        "dev": Split(_DEV, rows=2_174),
        "dev_generation": Split(_DEV),
        "test": Split(_TEST, rows=502),
    },
    convert=convert,
)
