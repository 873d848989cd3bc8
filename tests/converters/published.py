"""Small hand-written files in the published formats, and what their rows must become."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Sample:
    """One file of a data set.

    Attributes:
        file: Its path below the source.
        rows: Good rows (an object of rows for a keyed file).
        videos: Files below the videos' folder.
        expected: Of each resulting row: id without the data set's name, video, question, options, answer.
        extra: Some of the first row's extra_info.
        fields: Fields of the first row without which it is bad, as paths.
        subtitles: Other files below the source.
        windows: The gold windows of each resulting row; None for a set without any.
    """

    file: str
    rows: Any
    videos: Sequence[str]
    expected: Sequence[tuple[str, str, str, list[str], str]]
    extra: Mapping[str, Any]
    fields: Sequence[str]
    split: str | None = None
    subtitles: Mapping[str, str] = field(default_factory=dict)
    windows: Sequence[list[list[float]] | None] | None = None

    def write(self, folder: Path, rows: Any = None) -> Path:
        """Write the file and the videos to ``source`` and ``videos`` below a folder; the file's path."""
        path = folder / "source" / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        WRITERS[path.suffix](path, self.rows if rows is None else rows)
        for name, text in self.subtitles.items():
            (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "source" / name).write_text(text, encoding="utf-8")
        for name in self.videos:
            (folder / "videos" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "videos" / name).write_bytes(b"not read")
        return path


def _json(path: Path, rows: Any) -> None:
    path.write_text(json.dumps(rows), encoding="utf-8")


def _lines(path: Path, rows: Any) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _csv(path: Path, rows: Any) -> None:
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue(), encoding="utf-8")


def _parquet(path: Path, rows: Any) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def _text(path: Path, rows: Any) -> None:
    path.write_text("".join(row["line"] + "\n" for row in rows), encoding="utf-8")


WRITERS: dict[str, Callable[[Path, Any], None]] = {
    ".json": _json,
    ".jsonl": _lines,
    ".csv": _csv,
    ".parquet": _parquet,
    ".txt": _text,
}

SRT = """1
00:00:01,500 --> 00:00:03,000
<font color="white">hello there</font>

2
00:01:00,000 --> 00:01:02,000
bye
"""

AT_THE_END = "The image that the following question is about (<image 1>) is shown at the end of the video."

ONE = "\nAnswer with the start and the end of that moment in seconds, written as START - END, and nothing else."
ALL = (
    " There may be several such moments.\nAnswer with the start and the end of each in seconds, written as "
    "START - END, START - END, and nothing else; begin with the one that you are surest of."
)

SAMPLES: dict[str, Sample] = {
    "longvideo_reason": Sample(
        file="test.jsonl",
        rows=[
            {
                "problem_id": 0,
                "problem": "Why, as A. Berg says, does she stop?\nA. Rain\nB. A call\nC. Fatigue\nD. Fear",
                "data_type": "video", "problem_type": "goal", "reasoning": "", "videos": "longvila_videos/x1.mp4",
                "answer": "<answer>B</answer>",
            },
            {
                "problem_id": 1, "problem": "What is the dog called?", "data_type": "video", "problem_type": "plot",
                "reasoning": "It is said.", "videos": "longvila_videos/x2.mp4", "answer": "<answer>Rex</answer>",
            },
        ],
        videos=["longvila_videos/x1.webm", "longvila_videos/x2.mp4"],
        expected=[
            ("0", "longvila_videos/x1.webm", "Why, as A. Berg says, does she stop?",
             ["Rain", "A call", "Fatigue", "Fear"], "B"),
            ("1", "longvila_videos/x2.mp4", "What is the dog called?", [], "Rex"),
        ],
        extra={"category": "goal", "answer_text": "A call", "original_id": "0"},
        fields=["problem_id", "problem", "problem_type", "videos", "answer"],
        split="test",
    ),
    "cgbench": Sample(
        file="cgbench_mini.json",
        rows=[
            {
                "qid": 12, "video_uid": "u1", "question": "Which hat?", "choices": ["Blue", "Red", "B"],
                "right_answer": "C", "answer": "B", "clue_intervals": [[3, 4.5]], "duration": 600,
                "domain": "Life Record", "sub_category": "Travel",
            }
        ],
        videos=["u1.mp4"],
        expected=[("12", "u1.mp4", "Which hat?", ["Blue", "Red", "B"], "C")],
        extra={"category": "Life Record", "sub_category": "Travel", "clue_intervals": [[3.0, 4.5]], "duration": 600.0},
        fields=["qid", "video_uid", "question", "choices", "right_answer", "domain"],
        windows=[[[3.0, 4.5]]],
        split="mini",
        subtitles={"cg_subtitles/u1.srt": SRT},
    ),
    "nextqa": Sample(
        file="test.csv",
        rows=[
            {
                "video": 4010069381, "frame_count": 369, "width": 640, "height": 480,
                "question": "how many, roughly, are there", "answer": 1, "qid": 6, "type": "DC",
                "a0": "2", "a1": "1", "a2": "three", "a3": "0", "a4": "four",
            }
        ],
        videos=["1101/4010069381.mp4"],
        expected=[
            ("4010069381-6", "1101/4010069381.mp4", "how many, roughly, are there", ["2", "1", "three", "0", "four"],
             "B")
        ],
        extra={"category": "DC", "video_id": "4010069381", "frame_count": "369"},
        fields=["video", "question", "answer", "qid", "type", "a3"],
        split="test",
    ),
    "star": Sample(
        file="STAR_val.json",
        rows=[
            {
                "question_id": "Interaction_T1_13", "question": "Which object was tidied up?", "video_id": "6H78U",
                "start": 11.1, "end": 19.6, "answer": "The blanket.",
                "choices": [
                    {"choice_id": 1, "choice": "The table."}, {"choice_id": 0, "choice": "The closet."},
                    {"choice_id": 2, "choice": "The blanket."}, {"choice_id": 3, "choice": "The clothes."},
                ],
            }
        ],
        videos=["6H78U.mp4"],
        expected=[
            ("Interaction_T1_13", "6H78U.mp4", "Which object was tidied up?",
             ["The closet.", "The table.", "The blanket.", "The clothes."], "C")
        ],
        extra={"category": "Interaction", "start": 11.1, "end": 19.6},
        fields=["question_id", "question", "video_id", "start", "end", "answer", "choices", "choices.0.choice"],
        split="val",
    ),
    "perception_test": Sample(
        file="mc_question_valid.json",
        rows={
            "video_10": {
                "metadata": {"split": "valid"},
                "mc_question": [
                    {"id": 0, "question": "Is it lit?", "options": ["yes", "no", "2"], "answer_id": 2,
                     "area": "physics", "reasoning": "predictive", "tag": ["solidity", "motion"]}
                ],
            },
            "video_11": {"metadata": {"split": "valid"}},
        },
        videos=["video_10.mp4"],
        expected=[("video_10-0", "video_10.mp4", "Is it lit?", ["yes", "no", "2"], "C")],
        extra={"category": "physics", "reasoning": "predictive", "tags": ["solidity", "motion"]},
        fields=["mc_question.0.question", "mc_question.0.options", "mc_question.0.answer_id", "mc_question.0.id"],
        split="val",
    ),
    "clevrer": Sample(
        file="validation.json",
        rows=[
            {
                "scene_index": 10000, "video_filename": "video_10000.mp4",
                "questions": [
                    {"question_id": 0, "question": "How many spheres move?", "question_type": "descriptive",
                     "question_subtype": "count", "program": ["events"], "answer": "0"},
                    {"question_id": 11, "question": "What will happen next?", "question_type": "predictive",
                     "program": [], "choices": [{"choice_id": 0, "choice": "They collide", "answer": "wrong"},
                                                {"choice_id": 1, "choice": "They part", "answer": "correct"}]},
                    {"question_id": 12, "question": "What causes it?", "question_type": "explanatory", "program": [],
                     "choices": [{"choice_id": 0, "choice": "a", "answer": "correct"},
                                 {"choice_id": 1, "choice": "b", "answer": "correct"}]},
                ],
            }
        ],
        videos=["video_validation/video_10000-11000/video_10000.mp4"],
        expected=[
            ("10000-0", "video_validation/video_10000-11000/video_10000.mp4", "How many spheres move?", [], "0"),
            ("10000-11", "video_validation/video_10000-11000/video_10000.mp4", "What will happen next?",
             ["They collide", "They part"], "B"),
        ],
        extra={"category": "descriptive", "question_subtype": "count", "answer_text": "0"},
        fields=["scene_index", "video_filename", "questions", "questions.0.answer", "questions.1.choices.0.answer"],
        split="val",
    ),
    "llava_video": Sample(
        file="0_30_s_academic_v0_1/0_30_s_academic_mc_v0_1_qa_processed.json",
        rows=[
            {
                "id": "same", "data_source": "0_30_s_academic", "video": "academic_source/a.mp4",
                "conversations": [
                    {"from": "human",
                     "value": "<image>\nWhat colour?\nA. Red.\nB. Blue.\nPlease provide the letter with its option."},
                    {"from": "gpt", "value": "B. Blue."},
                    {"from": "human", "value": "Where?\nA. Inside.\nB. Outside.\nC. Both."},
                    {"from": "gpt", "value": "A"},
                ],
            },
            {
                "id": "same", "data_source": "0_30_s_academic", "video": "academic_source/a.mp4",
                "conversations": [
                    {"from": "human", "value": "<image>\nWho?\nA. He.\nB. She."}, {"from": "gpt", "value": "(B)"},
                ],
            },
        ],
        videos=["academic_source/a.mp4"],
        expected=[
            ("0_30_s_academic_mc_v0_1_qa_processed-0-0", "academic_source/a.mp4", "What colour?", ["Red.", "Blue."],
             "B"),
            ("0_30_s_academic_mc_v0_1_qa_processed-0-1", "academic_source/a.mp4", "Where?",
             ["Inside.", "Outside.", "Both."], "A"),
            ("0_30_s_academic_mc_v0_1_qa_processed-1-0", "academic_source/a.mp4", "Who?", ["He.", "She."], "B"),
        ],
        extra={"category": "0_30_s_academic", "published_id": "same"},
        fields=["video", "conversations", "conversations.0.value", "conversations.1.from"],
    ),
    "videoespresso": Sample(
        file="bench_hard.json",
        rows=[
            {
                "video_path": "v/e.mp4", "question": "Why?", "evidence": "A knife.", "task": "Causal Inference",
                "options": ["(A): It rains", "(B): It snows", "(C): Sun", "(D): Wind"], "correct_answer": "(D)",
            }
        ],
        videos=["v/e.mp4"],
        expected=[("bench_hard-0", "v/e.mp4", "Why?", ["It rains", "It snows", "Sun", "Wind"], "D")],
        extra={"category": "Causal Inference", "evidence": "A knife."},
        fields=["video_path", "question", "correct_answer"],
        split="test",
    ),
    "video_r1": Sample(
        file="Video-R1-260k.json",
        split="multi_choice",
        rows=[
            {
                "problem_id": 12, "problem": "Which?", "data_type": "video", "problem_type": "multiple choice",
                "options": ["A) one", "B) two"], "solution": "<answer>B</answer>", "data_source": "STAR",
                "path": "./STAR/12.mp4",
            },
            {
                "problem_id": 13, "problem": "How many?", "data_type": "video", "problem_type": "numerical",
                "options": [], "solution": "<answer>4</answer>", "data_source": "CLEVRER", "path": "./CLEVRER/13.mp4",
            },
            {
                "problem_id": 14, "problem": "What?", "data_type": "image", "problem_type": "multiple choice",
                "options": ["A) x", "B) y"], "solution": "<answer>A</answer>", "data_source": "ArxivQA",
                "path": "./Knowledge/ArxivQA/images/14.jpg",
            },
            {
                "problem_id": 15, "problem": "Why?", "data_type": "video", "problem_type": "multiple choice",
                "options": ["A. rain", "B. snow"], "solution": "<answer>A</answer>", "data_source": "STAR",
                "path": "./STAR/15.mp4",
            },
        ],
        videos=["STAR/12.mp4", "CLEVRER/13.mp4", "STAR/15.mp4"],
        expected=[
            ("12", "STAR/12.mp4", "Which?", ["one", "two"], "B"),
            ("15", "STAR/15.mp4", "Why?", ["rain", "snow"], "A"),
        ],
        extra={"category": "STAR", "kind": "multiple choice", "answer_text": "two"},
        fields=["problem_id", "problem", "data_type", "problem_type", "options", "solution", "path"],
    ),
    "videozoomer": Sample(
        file="rl.json",
        rows=[
            {
                "problem": "<video>\nWhich?\nA. one\nB. two", "solution": "<answer>A</answer>", "data_source": "lvr",
                "videos": ["lvr/1.mp4"], "doc_id": 5, "extra_info": {"answer_type": "multiple_choice"},
            },
            {
                "problem": "<video>Name it.", "solution": "A", "data_source": "lvr", "videos": ["lvr/1.mp4"],
                "doc_id": 6, "extra_info": {"answer_type": "open_ended"},
            },
        ],
        videos=["lvr/1.mp4"],
        expected=[
            ("5", "lvr/1.mp4", "Which?", ["one", "two"], "A"),
            ("6", "lvr/1.mp4", "Name it.", [], "A"),
        ],
        extra={"category": "lvr", "kind": "multiple_choice", "answer_text": "one"},
        fields=["problem", "solution", "videos", "doc_id", "extra_info", "extra_info.answer_type"],
    ),
    "longvt": Sample(
        file="rl.parquet",
        rows=[
            {
                "data_source": "longvt", "prompt": [{"role": "user", "content": "<video>What falls? Think first."}],
                "videos": [{"video": "file:///their/disk/long/a.mp4", "fps": 1, "min_frames": 1, "max_frames": 512}],
                "reward_model": {"style": "rule", "ground_truth": "a vase"},
                "extra_info": {"index": 7, "question": "What falls?", "answer": "a vase",
                               "video_segment": [812.5, 830.0]},
            }
        ],
        videos=["long/a.mp4"],
        expected=[("rl-7", "long/a.mp4", "What falls?", [], "a vase")],
        extra={"category": "longvt", "answer_text": "a vase"},
        fields=["videos", "reward_model", "extra_info", "extra_info.question", "extra_info.video_segment"],
        windows=[[[812.5, 830.0]]],
    ),
    "framethinker": Sample(
        file="train.parquet",
        rows=[
            {
                "prompt": [{"role": "user", "content": "long"}], "images": [{"bytes": b"x"}], "data_source": "holmes",
                "env_name": "frames", "reward_model": {"style": "rule", "ground_truth": "B"},
                "extra_info": {"index": 3, "fps": 29.97, "video_path": "/their/disk/data/holmes/q.mp4",
                               "total_frames": 900, "height": 360, "width": 640, "question": "Who? (A) He (B) She"},
            }
        ],
        videos=["holmes/q.mp4", "other/q.mp4"],
        expected=[("train-holmes-3", "holmes/q.mp4", "Who?", ["He", "She"], "B")],
        extra={"category": "holmes", "fps": 29.97, "total_frames": 900.0},
        fields=["data_source", "reward_model.ground_truth", "extra_info.video_path", "extra_info.question"],
    ),
    "seeker173k": Sample(
        file="clue.json",
        rows=[
            {
                "doc_id": 7, "video": "llava/7.mp4", "duration": 90.5, "question": "What next?",
                "options": ["A. a knife", "B. a spoon"], "data_source": "clue_multi_w_tool", "frame_fps": 4,
                "solution": {
                    "answer": "B",
                    "clue": [{"timestamp": [3, 5.5], "text": "she"}, {"timestamp": [20, 31], "text": ""}],
                },
            },
            {
                "doc_id": 8, "video": "charades/8.mp4", "duration": 30, "question": "a person sits down", "options": [],
                "data_source": "temporal_grounding", "solution": {"answer": "", "clue": [{"timestamp": [1.5, 9]}]},
            },
            {
                "doc_id": 9, "video": "lvr/9.mp4", "question": "Who?", "options": {"A": "he", "B": "she"},
                "data_source": "tool_free_form", "solution": {"answer": "A", "clue": []},
            },
            {
                "doc_id": 10, "video": "charades/10.mp4", "duration": 30, "problem": "a person stands up",
                "data_source": "temporal_grounding", "solution": {"answer": "", "clue": [{"timestamp": [2, 4]}]},
            },
        ],
        videos=["llava/7.mp4", "charades/8.mp4", "lvr/9.mp4", "charades/10.mp4"],
        expected=[
            ("clue-7", "llava/7.mp4", "What next?", ["a knife", "a spoon"], "B"),
            ("clue-8", "charades/8.mp4", "a person sits down", [], "1.5 - 9"),
            ("clue-9", "lvr/9.mp4", "Who?", ["he", "she"], "A"),
            ("clue-10", "charades/10.mp4", "a person stands up", [], "2 - 4"),
        ],
        extra={"reward_class": "clue_multi_w_tool", "duration": 90.5, "answer_text": "a spoon"},
        fields=["doc_id", "video", "question", "options", "data_source", "solution", "solution.answer"],
        windows=[[[3.0, 5.5], [20.0, 31.0]], [[1.5, 9.0]], None, [[2.0, 4.0]]],
    ),
    "longvideobench": Sample(
        file="lvb_val.json",
        rows=[
            {
                "video_id": "86C", "video_path": "86C.mp4", "id": "86C_0", "question": "In a room, who is she?",
                "candidates": ["0", "1", "2"], "correct_choice": 1, "duration": 20.0, "duration_group": 60,
                "question_category": "TOS", "topic_category": "KA-Knowledge-Art", "position": [1, 2],
                "subtitle_path": "86C_en.json", "starting_timestamp_for_subtitles": 100,
            }
        ],
        videos=["videos/86C.mp4"],
        expected=[("86C_0", "videos/86C.mp4", "In a room, who is she?", ["0", "1", "2"], "B")],
        extra={"category": "TOS", "duration": 20.0, "duration_group": "60", "duration_name": "15-60 s"},
        fields=["video_path", "id", "question", "candidates", "correct_choice", "duration", "duration_group",
                "question_category"],
        subtitles={
            "subtitles/86C_en.json": json.dumps(
                [
                    {"timestamp": [90.0, 95.0], "text": "before"},
                    {"timestamp": [101.0, None], "text": "open end"},
                    {"start": "00:01:58.500", "end": "00:02:10.000", "line": "last"},
                ]
            )
        },
    ),
    "videomme": Sample(
        file="videomme/test-00000-of-00001.parquet",
        rows=[
            {
                "video_id": "001", "videoID": "fFj.1.Az", "url": "u", "duration": "short", "domain": "Knowledge",
                "sub_category": "Law", "task_type": "Counting Problem", "question_id": "001-1",
                "question": "How many?", "options": ["A. 0.", "B. 1.", "C. 2.", "D. 3."], "answer": "C",
            },
            {
                "video_id": "601", "videoID": "zz", "url": "u", "duration": "long", "domain": "Knowledge",
                "sub_category": "Law", "task_type": "OCR Problems", "question_id": "601-1", "question": "What?",
                "options": ["A. a", "B. b", "C. c", "D. d"], "answer": "A",
            },
        ],
        videos=["data/fFj.1.Az.mp4", "data/zz.MP4"],
        expected=[
            ("001-1", "data/fFj.1.Az.mp4", "How many?", ["0.", "1.", "2.", "3."], "C"),
            ("601-1", "data/zz.MP4", "What?", ["a", "b", "c", "d"], "A"),
        ],
        extra={"category": "Counting Problem", "length": "short", "videoid": "fFj.1.Az", "domain": "Knowledge"},
        fields=["videoID", "duration", "question_id", "question", "options", "answer", "task_type"],
        subtitles={"subtitle/fFj.1.Az.srt": SRT},
    ),
    "mlvu": Sample(
        file="json/2_needle.json",
        rows=[
            {"video": "1.mp4", "duration": 480.5, "question": "What is it?", "candidates": ["B", "A", "C", "D"],
             "answer": "A", "question_type": "findNeedle"},
        ],
        videos=["2_needle/1.mp4", "1_plotQA/1.mp4"],
        expected=[("2_needle-0", "2_needle/1.mp4", "What is it?", ["B", "A", "C", "D"], "B")],
        extra={"category": "needle", "duration": 480.5},
        fields=["video", "question", "candidates", "answer"],
    ),
    "lvbench": Sample(
        file="video_info.meta.jsonl",
        rows=[
            {
                "key": "Cm73", "type": "sport", "video_info": {"fps": 30},
                "qa": [
                    {"uid": "2821", "question": "What year (A) is it?\n(A) 1636\n(B) 1366\n(C) 1363\n(D) 1633",
                     "answer": "D", "question_type": ["key information retrieval", "reasoning"],
                     "time_reference": "00:15-00:19"},
                    {"uid": "2822", "question": "Who?\n(A) x\n(B) y", "answer": "A",
                     "question_type": ["summarization"], "time_reference": "00:15-01:00:19"},
                ],
            }
        ],
        videos=["Cm73.mp4"],
        expected=[
            ("2821", "Cm73.mp4", "What year (A) is it?", ["1636", "1366", "1363", "1633"], "D"),
            ("2822", "Cm73.mp4", "Who?", ["x", "y"], "A"),
        ],
        extra={"category": "key information retrieval", "categories": ["key information retrieval", "reasoning"],
               "time_reference": "00:15-00:19", "video_type": "sport"},
        fields=["key", "qa.0.uid", "qa.0.question", "qa.0.answer", "qa.0.question_type"],
    ),
    "lsdbench": Sample(
        file="mc_qa_annotations_1300.json",
        rows=[
            {"video_id": "P01.9", "question": "What next?",
             "options": {"B": "boil", "A": "cut", "D": "stir", "C": "eat"}, "correct_answer": "B"}
        ],
        videos=["P01.9.mp4"],
        expected=[("P01.9-0", "P01.9.mp4", "What next?", ["cut", "boil", "eat", "stir"], "B")],
        extra={"video_id": "P01.9"},
        fields=["video_id", "question", "options", "correct_answer"],
    ),
    "mvbench": Sample(
        file="json/action_sequence.json",
        rows=[
            {"video": "ZS9XR.mp4", "question": "What then?", "candidates": ["Sat.", "A", "Ran."], "answer": "Ran.",
             "start": 11.1, "end": 19.6}
        ],
        videos=["star/Charades_v1_480/ZS9XR.mp4", "star/Charades_segment/ZS9XR.mp4", "elsewhere/ZS9XR.mp4"],
        expected=[
            ("action_sequence-0", "star/Charades_segment/ZS9XR.mp4", "What then?", ["Sat.", "A", "Ran."], "C")
        ],
        extra={"category": "action_sequence", "start": 11.1, "end": 19.6},
        fields=["video", "question", "candidates", "answer"],
    ),
    "video_holmes": Sample(
        file="test_Video-Holmes.json",
        rows=[
            {"video ID": "HK0j", "Question ID": 0, "Question Type": "SR", "Question": "Who are they?",
             "Options": {"A": "kin", "B": "foes", "C": "C", "D": "d", "E": "e", "F": "f"}, "Answer": "F",
             "Explanation": "They smile."}
        ],
        videos=["videos_cropped/HK0j.mp4"],
        expected=[
            ("HK0j-0", "videos_cropped/HK0j.mp4", "Who are they?", ["kin", "foes", "C", "d", "e", "f"], "F")
        ],
        extra={"category": "SR", "question_id": "0", "video_id": "HK0j", "explanation": "They smile."},
        fields=["video ID", "Question ID", "Question Type", "Question", "Options", "Answer"],
    ),
    "video_mmmu": Sample(
        file="Adaptation/test-00000-of-00001.parquet",
        rows=[
            {"id": "dev_Art_Theory_3", "question": "Which <image 1> style?", "options": ["A. Cubism", "B. Dada"],
             "answer": "B", "question_type": "multiple-choice"},
            {"id": "test_Math_7", "question": "How much?", "options": [], "answer": "['12', '12.0']",
             "question_type": "open"},
        ],
        videos=["Art/dev_Art_Theory_3.mp4", "Science/test_Math_7.mp4"],
        expected=[
            ("adaptation-dev_Art_Theory_3", "Art/dev_Art_Theory_3.mp4", f"{AT_THE_END}\nWhich <image 1> style?",
             ["Cubism", "Dada"], "B"),
            ("adaptation-test_Math_7", "Science/test_Math_7.mp4", f"{AT_THE_END}\nHow much?", [], "12 or 12.0"),
        ],
        extra={"category": "Adaptation", "subject": "Art_Theory"},
        fields=["id", "question", "options", "answer"],
    ),
    "video_mmlu": Sample(
        file="video_mmlu.jsonl",
        rows=[
            {"video_id": "m1", "discipline": "math",
             "captions_qa": [{"question": "What is drawn?", "answer": "A cone"}],
             "reasoning_qa": [{"question": "Why pi?", "answer": "Area"}, {"question": "How many?", "answer": 3}]}
        ],
        videos=["m1.mp4"],
        expected=[
            ("m1-quiz-0", "m1.mp4", "Why pi?", [], "Area"),
            ("m1-quiz-1", "m1.mp4", "How many?", [], "3"),
        ],
        extra={"category": "math"},
        fields=["video_id", "reasoning_qa", "reasoning_qa.0.question", "reasoning_qa.0.answer"],
    ),
    "timesearch": Sample(
        file="train.jsonl",
        rows=[
            {"video": "ego4d/v1.mp4", "question": "Where is the cup?\nA. shelf\nB. sink\nC. bag",
             "target": {"answer": "B"}, "type": "multiple_choice", "duration": 480.5},
            {"video": "ego4d/v2.mp4", "question": "What did I wash?", "target": {"answer": "a pan"},
             "type": "open_ended", "duration": 300},
            {"video": "ego4d/v2.mp4", "question": "When do I wash it?",
             "target": {"answer": '{"start_time": 12.5, "end_time": 20}'}, "type": "grounding", "duration": 300},
            {"video": "ego4d/v2.mp4", "question": "In which order? (a) I eat. (b) I cook.",
             "target": {"answer": "(b)(a)"}, "type": "sequence", "duration": 300},
        ],
        videos=["ego4d/v1.mp4", "ego4d/v2.mp4"],
        expected=[
            ("train-0", "ego4d/v1.mp4", "Where is the cup?", ["shelf", "sink", "bag"], "B"),
            ("train-1", "ego4d/v2.mp4", "What did I wash?", [], "a pan"),
            ("train-2", "ego4d/v2.mp4", "When do I wash it?", [], "12.5 - 20"),
            ("train-3", "ego4d/v2.mp4", "In which order? (a) I eat. (b) I cook.", [], "(b)(a)"),
        ],
        extra={"category": "multiple_choice", "type": "multiple_choice", "duration": 480.5},
        fields=["video", "question", "target", "target.answer"],
        windows=[None, None, [[12.5, 20.0]], None],
    ),
    "eva": Sample(
        file="lsd.jsonl",
        rows=[
            {"videos": ["file:///d/v1.mp4"], "index": 4,
             "prompt": [{"role": "system", "content": "tools"},
                        {"role": "user", "content": "<video>\nWhich?\nOptions:\nA. x\nB. y"}],
             "reward_model": {"style": "rule", "ground_truth": "B", "reward_fn": "mc"}},
            {"videos": [{"video": "v2.mp4"}], "index": 5,
             "prompt": [{"role": "user", "content": [{"type": "text", "text": "Tell."}]}],
             "reward_model": {"style": "rule", "ground_truth": "A long story.", "reward_fn": "rouge"}},
        ],
        videos=["v1.mp4", "v2.mp4"],
        expected=[("lsd-4", "v1.mp4", "Which?", ["x", "y"], "B"), ("lsd-5", "v2.mp4", "Tell.", [], "A long story.")],
        extra={"style": "rule", "reward_fn": "mc"},
        fields=["videos", "prompt", "reward_model", "reward_model.ground_truth", "index", "prompt.1.content"],
    ),
    "dream1k": Sample(
        file="DREAM-1k.jsonl",
        rows=[
            {"idx": 7, "dataset": "DREAM/stock", "video_file": "<placeholder>", "vid": 9,
             "text": {"prompt": "<video>\nTell what happens.", "response": "A fox runs."},
             "extra_info": {"duration": 5.1, "n_subjects": 1, "n_shots": 2, "events": ["A fox runs."], "n_events": 1}}
        ],
        videos=["video/9.mp4"],
        expected=[("7", "video/9.mp4", "Tell what happens.", [], "A fox runs.")],
        extra={"category": "stock", "events": ["A fox runs."], "duration": 5.1, "n_shots": "2"},
        fields=["idx", "dataset", "text", "text.response", "extra_info.events"],
    ),
    "temporalbench": Sample(
        file="temporalbench_short_qa.json",
        rows=[
            {"idx": "s_1", "video_name": "short_video/a.mp4", "dataset": "Charades", "category": "Action Order",
             "question": "Which caption fits?\nA. He sits, then runs.\nB. He runs, then sits.\nAnswer with the letter.",
             "GT": "B"}
        ],
        videos=["short_video/a.mp4"],
        expected=[
            ("short_qa-s_1", "short_video/a.mp4", "Which caption fits?",
             ["He sits, then runs.", "He runs, then sits."], "B")
        ],
        extra={"category": "Action Order", "dataset": "Charades", "video_name": "short_video/a.mp4"},
        fields=["idx", "video_name", "question", "GT"],
    ),
    "tempcompass": Sample(
        file="multi-choice/test-00000-of-00001.parquet",
        rows=[
            {"video_id": "1104088934", "question": "What moves?\nA. car\nB. bus\nC. tram", "answer": "B. bus",
             "dim": "action"}
        ],
        videos=["videos/1104088934.mp4"],
        expected=[("multi_choice-0", "videos/1104088934.mp4", "What moves?", ["car", "bus", "tram"], "B")],
        extra={"category": "action", "task": "multi_choice"},
        fields=["video_id", "question", "answer", "dim"],
    ),
    "vdc": Sample(
        file="short/test-00000-of-00001.parquet",
        rows=[
            {"video_name": "k1", "caption": "Rain on a roof.",
             "qa_list": [{"question": "What falls?", "answer": "rain"}]}
        ],
        videos=["Test_Videos/k1.mp4"],
        expected=[("short-k1", "Test_Videos/k1.mp4", "Describe this video in one sentence.", [], "Rain on a roof.")],
        extra={"category": "short", "qa_list": '[{"question": "What falls?", "answer": "rain"}]'},
        fields=["video_name", "caption", "qa_list"],
        split="short",
    ),
    "elv_halluc": Sample(
        file="ELV_Halluc.jsonl",
        rows=[
            {"video_path": "e/1.mp4", "question": "True?\nA dog.", "part_nums": 4, "aspect": "object",
             "caption_type": "ground_truth", "ref_answer": "yes"},
            {"video_path": "e/1.mp4", "caption": "A cat.", "part_nums": 4, "aspect": "object",
             "caption_type": "in_video", "ref_answer": "No"},
            {"video_path": "e/1.mp4", "question": "True?\nA cow.", "part_nums": 4, "aspect": "object",
             "caption_type": "out_video", "ref_answer": "no."},
        ],
        videos=["e/1.mp4"],
        expected=[
            ("0", "e/1.mp4", "True?\nA dog.", ["Yes", "No"], "A"),
            ("1", "e/1.mp4", "Is everything that the following caption says about the video right?\nA cat.",
             ["Yes", "No"], "B"),
            ("2", "e/1.mp4", "True?\nA cow.", ["Yes", "No"], "B"),
        ],
        extra={"category": "object", "caption_type": "ground_truth", "triplet": "0", "part_nums": "4"},
        fields=["video_path", "aspect", "caption_type", "ref_answer"],
    ),
    "egoschema": Sample(
        file="questions.json",
        rows=[
            {
                "q_uid": "001934bb-81bd", "google_drive_id": "x", "question": "What does C do overall?",
                "option 0": "Cooks.", "option 1": "Reads.", "option 2": "Walks.", "option 3": "Sews.",
                "option 4": "Sings.",
            }
        ],
        videos=["001934bb-81bd.mp4"],
        expected=[
            ("001934bb-81bd", "001934bb-81bd.mp4", "What does C do overall?",
             ["Cooks.", "Reads.", "Walks.", "Sews.", "Sings."], "D")
        ],
        extra={"duration": 180.0, "q_uid": "001934bb-81bd", "answer_text": "Sews."},
        fields=["question", "option 0", "option 4"],
        split="subset",
        subtitles={"subset_answers.json": '{"001934bb-81bd": 3, "another": 0}'},
    ),
    "mmvu": Sample(
        file="validation.json",
        rows=[
            {
                "id": "validation_0", "video": "https://h.co/datasets/yale-nlp/MMVU/resolve/main/videos/Art/0.mp4",
                "youtube_url": "u", "question_type": "multiple-choice", "question": "Which style?",
                "choices": {"A": "Cubism", "B": "Pop", "C": "Dada", "D": "Baroque", "E": "Gothic"}, "answer": "C",
                "metadata": {"subject": "Art", "textbook": "T", "rationale": "R", "knowledge": ["k"]},
            },
            {
                "id": "validation_1", "video": "videos/Modern_Physics/0.mp4", "question_type": "open-ended",
                "question": "Which sort?", "choices": {"A": "", "B": "", "C": "", "D": "", "E": ""},
                "answer": "O(n^2)", "metadata": {},
            },
        ],
        videos=["Art/0.mp4", "Modern_Physics/0.mp4"],
        expected=[
            ("validation_0", "Art/0.mp4", "Which style?", ["Cubism", "Pop", "Dada", "Baroque", "Gothic"], "C"),
            ("validation_1", "Modern_Physics/0.mp4", "Which sort?", [], "O(n^2)"),
        ],
        extra={"category": "Art", "discipline": "Humanities and Social Science", "question_kind": "multiple-choice"},
        fields=["id", "video", "question_type", "question", "choices", "answer"],
    ),
    "videoeval_pro": Sample(
        file="data/test-00000-of-00001.parquet",
        rows=[
            {
                "video": "abc.mp4", "question": "What is her name?", "options": ["A. Ann", "B. Bea"], "answer": "B",
                "answer_text": "Bea", "meta": "{}", "source": "lvbench", "qa_subtype": "Entity Recognition",
                "qa_type": "Local Perception",
            }
        ],
        videos=["videos_filtered/abc.mp4"],
        expected=[("0", "videos_filtered/abc.mp4", "What is her name?", [], "Bea")],
        extra={
            "category": "Local Perception", "qa_subtype": "Entity Recognition", "source": "lvbench",
            "video_name": "abc.mp4",
        },
        fields=["video", "question", "answer_text", "qa_type"],
    ),
    "longtimescope": Sample(
        file="data/test-00000-of-00001.parquet",
        rows=[
            {
                "id": 7, "video": "videos/7.mp4", "input": "What is written there?\nA. STOP\nB. GO\nC. OUT\nD. IN",
                "answer": "B", "type": "OCR", "length": 28_800,
            }
        ],
        videos=["videos/7.mp4"],
        expected=[("7", "videos/7.mp4", "What is written there?", ["STOP", "GO", "OUT", "IN"], "B")],
        extra={"category": "OCR", "duration": 28_800.0, "duration_name": "8 h"},
        fields=["id", "video", "input", "answer", "type", "length"],
    ),
    "minerva": Sample(
        file="minerva.json",
        rows=[
            {
                "key": "aQ:1", "video_id": "https://www.youtube.com/watch?v=0A1b2C3d4E5&t=3", "question": "How many?",
                "answer": "4", "answer_choice_0": "2", "answer_choice_1": "3", "answer_choice_2": "4",
                "answer_choice_3": "5", "answer_choice_4": "6", "answer_id": 2, "reasoning": "At 0:10 two, then two.",
                "question type": "Counting, Temporal Reasoning", "split": "Sports", "category": "Tennis",
            }
        ],
        videos=["0A1b2C3d4E5.webm"],
        expected=[("aQ:1", "0A1b2C3d4E5.webm", "How many?", ["2", "3", "4", "5", "6"], "C")],
        extra={
            "categories": ["Counting", "Temporal Reasoning"], "domain": "Sports", "sub_category": "Tennis",
            "reasoning": "At 0:10 two, then two.",
        },
        fields=["key", "video_id", "question", "answer_choice_0", "answer_choice_4", "answer_id", "question type"],
    ),
    "herbench": Sample(
        file="tasks/temporal_shot_ordering.json",
        rows=[
            {
                "video_id": "Trailer", "video_path": "videos/trailers/Trailer.mp4", "question_id": "TSO_0000",
                "question": "In which order?", "answer_text": "1->3->2", "answer_choice": "B", "answer_index": 1,
                "candidates": ["A. 1->2->3", "B. 1->3->2", "C. 2->1->3", "D. 3->2->1", "E. 3->1->2"],
                "task_type": "Temporal Shot Ordering",
                "metadata": {"timestamps": ["02:04.9-02:06.0", "00:08.0-00:09.0"], "source_dataset": "trailers"},
            }
        ],
        videos=["trailers/Trailer.mp4"],
        expected=[
            ("TSO_0000", "trailers/Trailer.mp4", "In which order?",
             ["1->2->3", "1->3->2", "2->1->3", "3->2->1", "3->1->2"], "B")
        ],
        extra={"category": "Temporal Shot Ordering", "source_dataset": "trailers", "video_id": "Trailer"},
        fields=["video_path", "question_id", "question", "answer_index", "candidates", "task_type"],
        windows=[[[8.0, 9.0], [124.9, 126.0]]],
    ),
    "videosiah_eval": Sample(
        file="data/test-00000-of-00001.parquet",
        rows=[{"video_path": "videos/v1.mp4", "question": "What does he drop?", "answer": "A key."}],
        videos=["videos/v1.mp4"],
        expected=[("0", "videos/v1.mp4", "What does he drop?", [], "A key.")],
        extra={"video_name": "videos/v1.mp4", "answer_text": "A key."},
        fields=["video_path", "question", "answer"],
    ),
    "charades_sta": Sample(
        file="charades_sta_test.txt",
        rows=[
            {"line": "3MSZA 24.3 30.4##person turn a light on, then it goes off again."},
            {"line": "AKKWU 0.0 12##person opens  the ## cabinet of the kitchen, slowly, and looks in."},
        ],
        videos=["Charades_v1_480/3MSZA.mp4", "Charades_v1_480/AKKWU.mp4"],
        expected=[
            ("test-0", "Charades_v1_480/3MSZA.mp4",
             'When in the video does this happen: "person turn a light on, then it goes off again."?' + ONE, [],
             "24.3 - 30.4"),
            ("test-1", "Charades_v1_480/AKKWU.mp4",
             'When in the video does this happen: "person opens the ## cabinet of the kitchen, slowly, and looks in."?'
             + ONE, [], "0 - 12"),
        ],
        extra={"query": "person turn a light on, then it goes off again.", "video_id": "3MSZA"},
        fields=[],
        split="test",
        windows=[[[24.3, 30.4]], [[0.0, 12.0]]],
    ),
    "activitynet_captions": Sample(
        file="captions/val_2.json",
        rows={
            "v_a": {
                "duration": 55.15, "timestamps": [[0, 4.14], [4.14, 33.36]],
                "sentences": ["Two men are talking.", " One man is holding a rope."],
            },
            "v_b": {"duration": 73.1, "timestamps": [[0.28, 73.1]], "sentences": ["A man speaks."]},
        },
        videos=["v_a.mp4", "v_b.mkv"],
        expected=[
            ("val_2-v_a-0", "v_a.mp4", 'When in the video does this happen: "Two men are talking."?' + ONE, [],
             "0 - 4.14"),
            ("val_2-v_a-1", "v_a.mp4", 'When in the video does this happen: "One man is holding a rope."?' + ONE, [],
             "4.14 - 33.36"),
            ("val_2-v_b-0", "v_b.mkv", 'When in the video does this happen: "A man speaks."?' + ONE, [],
             "0.28 - 73.1"),
        ],
        extra={"query": "Two men are talking.", "duration": 55.15, "video_id": "v_a"},
        fields=["duration", "timestamps", "sentences"],
        split="val_2",
        windows=[[[0.0, 4.14]], [[4.14, 33.36]], [[0.28, 73.1]]],
    ),
    "qvhighlights": Sample(
        file="highlight_val_release.jsonl",
        rows=[
            {
                "qid": 8737, "query": "A family plays basketball.", "duration": 126, "vid": "bP5KfdFJzC4_660.0_810.0",
                "relevant_windows": [[0, 16], [30, 44]], "relevant_clip_ids": [0, 7],
                "saliency_scores": [[4, 1, 1], [3, 3, 4]],
            },
            {
                "qid": 5071, "query": "A woman at a desk", "duration": 150, "vid": "NUsG9BgSes0_60.0_210.0",
                "relevant_windows": [[118, 136]], "relevant_clip_ids": [59], "saliency_scores": [[3, 3, 3]],
            },
        ],
        videos=["videos/bP5KfdFJzC4_660.0_810.0.mp4", "videos/NUsG9BgSes0_60.0_210.0.mp4"],
        expected=[
            ("8737", "videos/bP5KfdFJzC4_660.0_810.0.mp4",
             'When in the video does this happen: "A family plays basketball."?' + ALL, [], "0 - 16, 30 - 44"),
            ("5071", "videos/NUsG9BgSes0_60.0_210.0.mp4",
             'When in the video does this happen: "A woman at a desk"?' + ALL, [], "118 - 136"),
        ],
        extra={
            "query": "A family plays basketball.", "duration": 126.0, "original_id": "8737",
            "relevant_clip_ids": [0, 7], "saliency_scores": [[4, 1, 1], [3, 3, 4]],
        },
        fields=["qid", "query", "duration", "vid", "relevant_windows"],
        split="val",
        windows=[[[0.0, 16.0], [30.0, 44.0]], [[118.0, 136.0]]],
    ),
    "nextgqa": Sample(
        file="test.csv",
        rows=[
            {
                "video_id": 10001787725, "frame_count": 1020, "width": 640, "height": 480,
                "question": "why did the boy move to the sofa", "answer": "unwrap it", "qid": 3, "type": "CW",
                "a0": "share", "a1": "sit", "a2": "unwrap it", "a3": "play", "a4": "gesture",
            }
        ],
        videos=["0101/10001787725.mp4"],
        expected=[
            ("10001787725-3", "0101/10001787725.mp4", "why did the boy move to the sofa",
             ["share", "sit", "unwrap it", "play", "gesture"], "C")
        ],
        extra={"category": "CW", "video_id": "10001787725", "duration": 34.0, "qid": "3"},
        fields=["video_id", "question", "answer", "qid", "type", "a3"],
        split="test",
        subtitles={
            "gsub_test.json": '{"10001787725": {"duration": 34, "location": {"1": [[1.2, 5.8]], "3": [[12.1, 17.1], '
            '[20.0, 23.5]]}, "fps": 29.97}}'
        },
        windows=[[[12.1, 17.1], [20.0, 23.5]]],
    ),
    "rextime": Sample(
        file="rextime_val.json",
        rows=[
            {
                "qid": "anet_val92", "vid": "v_ZMTi498qnPc", "source": "anet_val", "category": "sequential",
                "duration": 100.5, "question": "What does she do before she smiles?",
                "options": ["She sits.", "She claps her hands.", "She jumps.", "She waves."],
                "answer": "From <s0> to <e0>, <option>", "ans": "B", "span": [5, 8],
            },
            {
                "qid": "qvh_val241", "vid": "2I9-kvemtSU_510.0_660.0", "source": "qvhighlights_val",
                "category": "cause", "duration": 150, "question": "What were they doing?",
                "options": ["One", "Two", "Three", "Four"], "answer": "From <s0> to <e0>, <option>", "ans": "A",
                "span": [0, 28],
            },
        ],
        videos=["anet/v_ZMTi498qnPc.mp4", "qvh/2I9-kvemtSU_510.0_660.0.mp4"],
        expected=[
            ("anet_val92", "anet/v_ZMTi498qnPc.mp4", "What does she do before she smiles?",
             ["She sits.", "She claps her hands.", "She jumps.", "She waves."], "B"),
            ("qvh_val241", "qvh/2I9-kvemtSU_510.0_660.0.mp4", "What were they doing?", ["One", "Two", "Three", "Four"],
             "A"),
        ],
        extra={"category": "sequential", "source": "anet_val", "duration": 100.5},
        fields=["qid", "vid", "category", "question", "options", "ans", "span"],
        split="val",
        windows=[[[5.0, 8.0]], [[0.0, 28.0]]],
    ),
}  # fmt: skip
