"""Further published forms and splits of single data sets, and their particular traps."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentic_video.converters import CONVERTERS
from agentic_video.converters.base import BadPart, Fields, Question, UnsupportedRow
from agentic_video.converters.elv_halluc import hallucination_scores, sah_ratio
from agentic_video.converters.files import VideoFolder
from agentic_video.grounding.answer import grade_intervals
from agentic_video.types.row import RowError, VideoQA
from tests.converters.published import SAMPLES


def questions(name: str, raw: Any, split: str = "", file: str = "f.json", number: int = 0) -> list[Question]:
    found = []
    fields = Fields(raw, f"{file} row {number}", number=number)
    for question in CONVERTERS[name].convert(fields, split or next(iter(CONVERTERS[name].splits))):
        if isinstance(question, RowError):
            raise question
        found.append(question)
    return found


def evidence(location: Any) -> dict[str, Any]:
    return {"10001787725": {"duration": 34, "location": location}}


def first(name: str, **changes: Any) -> dict[str, Any]:
    rows = SAMPLES[name].rows
    return {**(rows[0] if isinstance(rows, list) else next(iter(rows.values()))), **changes}


def cases() -> list[Any]:
    forms = yaml.safe_load(Path(__file__).with_name("forms.yaml").read_text(encoding="utf-8"))
    return [
        pytest.param(name, case, id=f"{name}-{number}") for name, of in forms.items() for number, case in enumerate(of)
    ]


@pytest.mark.parametrize(("name", "case"), cases())
def test_a_row_in_another_form(name: str, case: dict[str, Any]) -> None:
    row = case.get("row") or first(name, **case.get("changes", {}))
    row = {field: value for field, value in row.items() if field not in case.get("without", ())}
    file, number = case.get("file", "f.json"), case.get("number", 0)
    if field := case.get("error"):
        with pytest.raises(RowError) as caught:
            questions(name, row, case.get("split", ""), file)
        assert str(caught.value).startswith(f"{file} row 0: ") and f"'{field}'" in str(caught.value)
        return
    found = questions(name, row, case.get("split", ""), file, number)
    if case["expect"] is None:
        assert found == []
        return
    (question,) = found
    assert json.loads(json.dumps({key: getattr(question, key) for key in case["expect"]})) == case["expect"]
    assert {key: question.extra.get(key) for key in case.get("extra", {})} == case.get("extra", {})


def test_longvideo_reason_videos_lie_in_the_archives_folders(tmp_path: Path) -> None:
    found = tmp_path / "longvideo_eval_subset3" / "x1.mp4"
    found.parent.mkdir()
    found.write_bytes(b"x")
    (question,) = questions("longvideo_reason", first("longvideo_reason"))
    assert VideoFolder(tmp_path).find(question.videos, question.exact_video).path == found


@pytest.mark.parametrize("name", ["videozoomer", "seeker173k", "framethinker"])
def test_longvideo_reason_s_videos_in_other_sets_rows(name: str, tmp_path: Path) -> None:
    def named(path: str) -> Question:
        row = first(name)
        if name == "framethinker":
            row = {**row, "extra_info": {**row["extra_info"], "video_path": path}}
        else:
            row = {**row, "videos": [path], "video": path}
        (question,) = questions(name, row)
        return question

    found = tmp_path / "videos_part1" / "abc.mp4"
    found.parent.mkdir()
    found.write_bytes(b"x")
    for path in ("longvila_videos/abc.mp4", "/their/disk/longvila_videos/abc.mp4"):
        assert VideoFolder(tmp_path).find(named(path).videos).path == found
    # another set's name may be another video's
    with pytest.raises(FileNotFoundError, match="lies in other folders"):
        VideoFolder(tmp_path).find(named("lvr/abc.mp4").videos)


def test_cgbench_without_evidence_that_can_be_used() -> None:
    # without evidence that can be used the question is still one
    fields = Fields(first("cgbench", clue_intervals=[[4, 3]]), "f.json row 0")
    problem, kept = CONVERTERS["cgbench"].convert(fields, "mini")
    assert isinstance(problem, BadPart) and "'clue_intervals' must hold 0 <= start <= end" in str(problem)
    assert isinstance(kept, Question) and (kept.answer, kept.windows) == ("C", ())


def test_seeker173k_s_clues() -> None:
    def kept(**change: Any) -> list[Question | RowError]:
        return list(CONVERTERS["seeker173k"].convert(Fields(first("seeker173k", **change), "f.json row 0"), "train"))

    clues = [{"timestamp": [9, 3]}, {"timestamp": [4, 4]}, {"timestamp": [1, 2]}, {"text": "no time"}, 5]
    *bad, question = kept(solution={"answer": "B", "clue": clues})
    assert [type(problem) for problem in bad] == [BadPart] * 4
    assert isinstance(question, Question) and question.windows == ((1.0, 2.0),)
    # a question without clues is one all the same, a segment without its times isn't
    (question,) = kept(solution={"answer": "B"})
    assert isinstance(question, Question) and question.windows == ()


def test_clevrer_several_right_options_are_unsupported() -> None:
    raw = SAMPLES["clevrer"].rows[0]
    only = {**raw, "questions": [raw["questions"][2]]}
    with pytest.raises(UnsupportedRow, match=r"'questions\[0\]\.choices': 2 of 2 options are right"):
        questions("clevrer", only)


@pytest.mark.parametrize(("split", "ids"), [("short", ["001-1"]), ("medium", []), ("long", ["601-1"])])
def test_videomme_by_length(split: str, ids: list[str]) -> None:
    rows = SAMPLES["videomme"].rows
    assert [question.id for raw in rows for question in questions("videomme", raw, split)] == ids


def test_lvbench_one_bad_question_leaves_the_others() -> None:
    raw = SAMPLES["lvbench"].rows[0]
    bad = {**raw, "qa": [{**raw["qa"][0], "answer": "E"}, raw["qa"][1], "nothing"]}
    found = list(CONVERTERS["lvbench"].convert(Fields(bad, "f.jsonl line 1"), "test"))
    assert isinstance(found[0], RowError)
    assert "f.jsonl line 1: field 'qa[0].answer' must be a letter from A to D" in str(found[0])
    assert isinstance(found[1], Question)
    assert isinstance(found[2], RowError)


def test_video_mmmu_of_github() -> None:
    """One object of rows below the stage's name; the image is mentioned in the adaptation stage alone."""
    rows = {str(number): row for number, row in enumerate(SAMPLES["video_mmmu"].rows)}
    found = list(CONVERTERS["video_mmmu"].convert(Fields({**rows, "2": 3}, "a_video.json row 0", "Adaptation"), "all"))
    assert [one.id for one in found[:2] if isinstance(one, Question)] == [
        "adaptation-dev_Art_Theory_3",
        "adaptation-test_Math_7",
    ]
    assert isinstance(found[2], RowError)
    (question,) = CONVERTERS["video_mmmu"].convert(Fields({"0": rows["0"]}, "p.json row 0", "Perception"), "all")
    assert isinstance(question, Question)
    assert question.question == "Which <image 1> style?"
    for answer in ("['12', '12.0]", "[]", "[12"):
        with pytest.raises(RowError, match="field 'answer'"):
            questions("video_mmmu", {**rows["1"], "answer": answer}, file="Adaptation/test.parquet")


DREAM_MESSAGES = [
    {
        "role": "user",
        "content": [
            {"type": "video", "text": None, "reference": None, "video": {"video_file": "<placeholder>"}},
            {"type": "text", "text": "Tell what happens.", "reference": None, "video": None},
        ],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "", "reference": "A fox runs.", "video": None}]},
]


def test_dream1k_in_messages() -> None:
    raw = {name: value for name, value in first("dream1k", messages=DREAM_MESSAGES).items() if name != "text"}
    (question,) = questions("dream1k", raw)
    assert (question.question, question.answer, question.videos) == ("Tell what happens.", "A fox runs.", ("9",))
    asked, told = DREAM_MESSAGES
    named = {**asked, "content": [{"video": {"video_file": "v/9.mp4"}}, {"text": "Tell."}]}
    assert questions("dream1k", {**raw, "messages": [named, told]})[0].videos == ("v/9.mp4", "9")
    for messages, missing in (([asked], "reference"), ([told], "text that asks"), ([{"role": "user"}], "content")):
        with pytest.raises(RowError, match=rf"'messages.*{missing}"):
            questions("dream1k", {**raw, "messages": messages})


def test_tempcompass_by_video() -> None:
    """The files of the project's own repository: video, dimension, questions."""
    raw = {
        "action": [{"question": "Runs it?", "answer": "yes"}, {"question": "", "answer": "no"}],
        "speed": [{"question": "Is it slow?", "answer": "no"}],
        "order": 3,
    }
    found = list(CONVERTERS["tempcompass"].convert(Fields(raw, "yes_no.json row 0", "104_reverse"), "yes_no"))
    assert [(one.id, one.videos, one.answer, one.extra["category"]) for one in found if isinstance(one, Question)] == [
        ("yes_no-104_reverse-action-0", ("104_reverse",), "A", "action"),
        ("yes_no-104_reverse-speed-0", ("104_reverse",), "B", "speed"),
    ]
    assert [str(one) for one in found if isinstance(one, RowError)] == [
        "yes_no.json row 0: field 'action[1].question' must be a non-empty text, got ''",
        "yes_no.json row 0: field 'order' must be a list of objects, got 3",
    ]
    told = {"speed": [{"question": "Tell.", "answer": "B. slow"}]}
    (question,) = CONVERTERS["tempcompass"].convert(Fields(told, "captioning.json row 0", "1"), "captioning")
    assert isinstance(question, Question)
    assert (question.answer, "mc_question" in question.extra) == ("B. slow", False)


@pytest.mark.parametrize(
    ("name", "field", "split"), [("vdc", "qa_list", "short"), ("video_mmlu", "captions_qa", "caption")]
)
def test_a_blank_question_leaves_the_others(name: str, field: str, split: str) -> None:
    pairs = [{"question": "What falls?", "answer": "rain"}, {"question": "", "answer": "?"}, 3]
    *bad, question = CONVERTERS[name].convert(Fields(first(name, **{field: pairs}), "f.json row 0"), split)
    assert isinstance(question, Question)
    assert question.extra["qa_list"] == '[{"question": "What falls?", "answer": "rain"}]'
    assert [type(error) for error in bad] == [BadPart, BadPart]
    assert f"field '{field}[1].question' must be a non-empty text" in str(bad[0])
    with pytest.raises(RowError, match=rf"field '{field}' has no question .* \(first: .*\[0\]\.question"):
        questions(name, first(name, **{field: pairs[1:]}), split)


def test_hallucination_scores() -> None:
    # Triplets: all right; out-of-video right alone; the true caption wrong, so neither pair; one unanswered.
    right = {"0": (True, True, True), "1": (True, False, True), "2": (False, True, True), "3": (True, True, True)}
    answers = [
        (triplet, kind, good)
        for triplet, given in right.items()
        for kind, good in zip(("ground_truth", "in_video", "out_video"), given, strict=True)
    ]
    scores = hallucination_scores([*answers, ("4", "ground_truth", True)])
    assert (scores.in_accuracy, scores.out_accuracy, scores.accuracy) == (0.5, 0.75, 0.625)
    assert scores.sah_ratio == 0.5
    assert scores.triplets == 4
    with pytest.raises(ValueError, match="two answers for in_video"):
        hallucination_scores([*answers, answers[1]])
    with pytest.raises(ValueError, match="no triplet"):
        hallucination_scores([("0", "ground_truth", True)])


def test_sah_ratio() -> None:
    assert sah_ratio(0.2, 0.6) == pytest.approx(0.5)
    assert sah_ratio(0.6, 0.2) == pytest.approx(-1.0)
    assert sah_ratio(1.0, 1.0) == 0.0
    with pytest.raises(ValueError, match=r"within 0 \.\. 1"):
        sah_ratio(1.2, 0.5)


def test_folders_of_all_mvbench_tasks() -> None:
    from agentic_video.converters.mvbench import FOLDERS

    assert len(FOLDERS) == 20
    assert all(not Path(folder).is_absolute() for folders in FOLDERS.values() for folder in folders)


def test_charades_sta_windows_may_end_after_their_video() -> None:
    """As 562 published ones do: nobody cuts them, so that an answer is compared with what was published."""
    (question,) = questions("charades_sta", {"line": "3MSZA 24.3 99.9##a person sits."})
    assert question.windows == ((24.3, 99.9),)
    qa = VideoQA("q", "v", question.question, "24.3 - 99.9", "interval", windows=question.windows)
    # 25.2 s of 75.6 s
    assert grade_intervals("24.3 - 49.5", qa) == pytest.approx(1 / 3)


def test_activitynet_captions_keep_the_other_sentences_of_a_video() -> None:
    row = {"duration": 9, "timestamps": [[0, 1], [3, 2], [2, 4]], "sentences": ["a", "b", "c"]}
    found = list(CONVERTERS["activitynet_captions"].convert(Fields(row, "f row 0", key="v_x"), "train"))
    assert [isinstance(one, RowError) for one in found] == [False, True, False]
    assert [one.id for one in found if isinstance(one, Question)] == ["train-v_x-0", "train-v_x-2"]


@pytest.mark.parametrize(
    ("numbers", "ratings"),
    [
        ([0], [[4, 1]]),
        ([0], [[4, 1, 5]]),
        ([0, 1], [[4, 1, 1]]),
        ([63], [[4, 1, 1]]),
        ([0.5], [[4, 1, 1]]),
        ([0], None),
    ],
)
def test_qvhighlights_ratings_that_do_not_fit_are_left_out(numbers: Any, ratings: Any) -> None:
    """The video of 126 s has the clips 0 to 62."""
    row = first("qvhighlights", relevant_clip_ids=numbers, saliency_scores=ratings)
    problem, question = CONVERTERS["qvhighlights"].convert(Fields(row, "f.json row 0"), "val")
    assert str(problem).startswith("f.json row 0: field 'saliency_scores' must hold three ratings")
    assert isinstance(question, Question) and "saliency_scores" not in question.extra and question.windows


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({}, "gsub_test.json: field '10001787725' is missing"),
        ({"10001787725": 3}, "gsub_test.json: expected an object at '10001787725'"),
        (evidence({"1": [[0, 1]]}), "gsub_test.json: field '10001787725.location.3' is missing"),
        (evidence({"3": [[5, 1]]}), "gsub_test.json: field '10001787725.location.3' must hold 0 <= start <= end"),
        (evidence({"3": [[-1.5, 1]]}), "field '10001787725.location.3' must hold 0 <= start <= end"),
        (evidence({"3": [7]}), "field '10001787725.location.3' must be a list of [start, end]"),
        (evidence({"3": []}), "field '10001787725.location.3' must hold at least one window"),
    ],
)
def test_nextgqa_evidence_lies_in_another_file(other: dict[str, Any], message: str) -> None:
    fields = Fields(SAMPLES["nextgqa"].rows[0], "test.csv row 0")
    fields.extra = other
    with pytest.raises(RowError, match=r"test\.csv row 0: field 'qid' has no evidence: ") as caught:
        list(CONVERTERS["nextgqa"].convert(fields, "test"))
    assert message in str(caught.value)


def test_nextgqa_windows_may_begin_a_little_before_the_video() -> None:
    fields = Fields(SAMPLES["nextgqa"].rows[0], "test.csv row 0")
    fields.extra = evidence({"3": [[-0.1, 11.0], [12, 34]]})
    (question,) = CONVERTERS["nextgqa"].convert(fields, "test")
    assert isinstance(question, Question) and question.windows == ((0.0, 11.0), (12.0, 34.0))
