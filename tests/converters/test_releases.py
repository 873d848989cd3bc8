"""Further published forms and splits of single data sets, and their particular traps."""

from pathlib import Path
from typing import Any

import pytest

from agentic_video.converters import CONVERTERS
from agentic_video.converters.base import BadPart, Fields, Question, UnsupportedRow
from agentic_video.converters.elv_halluc import hallucination_scores, sah_ratio
from agentic_video.converters.files import VideoFolder
from agentic_video.grounding.answer import grade_intervals
from agentic_video.types.row import RowError, VideoQA
from tests.converters.published import SAMPLES


def questions(name: str, raw: Any, split: str = "", file: str = "f.json", number: int = 0) -> list[Question]:
    """The good questions of one row; an error in it is raised."""
    found = []
    fields = Fields(raw, f"{file} row {number}", number=number)
    for question in CONVERTERS[name].convert(fields, split or next(iter(CONVERTERS[name].splits))):
        if isinstance(question, RowError):
            raise question
        found.append(question)
    return found


def evidence(location: Any) -> dict[str, Any]:
    """NExT-GQA's file of windows for its sample."""
    return {"10001787725": {"duration": 34, "location": location}}


def first(name: str, **changes: Any) -> dict[str, Any]:
    rows = SAMPLES[name].rows
    return {**(rows[0] if isinstance(rows, list) else next(iter(rows.values()))), **changes}


TWICE = [{"choice_id": 0, "choice": "a"}, {"choice_id": 0, "choice": "b"}]
TURNS = [{"from": "human", "value": "Tell.\nA. x\nB. y"}, {"from": "gpt", "value": "B. Long ago."}]
MALFORMED: list[tuple[str, dict[str, Any], str]] = [
    ("longvideo_reason", {"problem": "Why?", "answer": "<answer>B</answer>"}, "problem"),
    ("longvideo_reason", {"answer": "<answer></answer>"}, "answer"),
    ("longvideo_reason", {"answer": "<answer>E</answer>"}, "answer"),
    ("longvideo_reason", {"problem": "A. one\nB. two"}, "problem"),
    ("longvideo_reason", {"problem": "Why?\nA. Rain\nB. A call\nD. Fear\nA. Fatigue"}, "problem"),
    ("cgbench", {"right_answer": "A"}, "answer"),
    ("cgbench", {"clue_intervals": [3, 4]}, "clue_intervals"),
    ("seeker173k", {"options": "a knife, a spoon"}, "options"),
    ("seeker173k", {"options": "Which?\nA. a knife\nB. a spoon"}, "options"),
    ("seeker173k", {"options": "A. a knife\nB. a spoon\nB. a fork"}, "options"),
    ("seeker173k", {"data_source": "charades", "solution": {"clue": []}}, "solution.clue"),
    ("star", {"choices": TWICE}, "choices[1].choice_id"),
    ("star", {"choices": [3]}, "choices[0]"),
    ("star", {"end": 3}, "end"),
    ("llava_video", {"conversations": TURNS[:1]}, "conversations"),
    ("llava_video", {"conversations": TURNS}, "conversations[1].value"),
    ("longvideobench", {"candidates": None, "option0": "only one"}, "candidates"),
    ("mlvu", {"answer": "A, really"}, "answer"),
    ("lsdbench", {"options": {"A": "x", "C": "y"}}, "options"),
    ("lsdbench", {"time_range": {"start": "00:10:00"}}, "time_range.end"),
    ("mvbench", {}, "video"),  # the file is named after no task
    ("video_mmmu", {}, "id"),  # nor after a stage
    ("vdc", {"qa_list": []}, "qa_list"),
    ("elv_halluc", {"caption_type": "in_video"}, "ref_answer"),
    ("timesearch", {"type": "riddle"}, "type"),
    ("timesearch", {"type": "open_ended"}, "question"),
    ("timesearch", {"question": "Where?"}, "question"),
    ("timesearch", {"target": {"answer": "D"}}, "target.answer"),
    *(
        ("timesearch", {"question": "When?", "type": "grounding", "target": {"answer": answer}}, "target.answer")
        for answer in ("12 - 20", '{"start_time": 20, "end_time": 12}', '{"start_time": 1}', "[" * 9_999, [1, 2])
    ),
    *(("eva", {"videos": videos}, "videos") for videos in ([], ["a", "b"], 3, [None], [{"path": "x"}])),
    ("eva", {"prompt": [{"role": "user", "content": "Which?\nA. x\nB.\nOnly give the best option."}]}, "prompt"),
    *(
        ("charades_sta", {"line": line}, "line")
        for line in ("3MSZA 24.3 30.4", "3MSZA 24.3##a person sits.", "3MSZA 24.3 30.4## ", "3MSZA 8.0 7.0##he sits.")
    ),
    *(("charades_sta", {"line": f"3MSZA 24.3 {end}##a person sits."}, "end") for end in ("nan", "1e999")),
    ("activitynet_captions", {"timestamps": [[0, 4.14]]}, "timestamps"),
    *(("activitynet_captions", {"timestamps": [[0, 4.14], window]}, "timestamps[1]") for window in (None, [9, 3], [1])),
    ("activitynet_captions", {"sentences": ["Two men.", " "]}, "sentences[1]"),
    ("activitynet_captions", {"duration": 0}, "duration"),
    *(
        ("qvhighlights", {"relevant_windows": windows}, "relevant_windows")
        for windows in (None, [], [3], [[3]], "0 - 3", [[3, 1]], [[0, float("inf")]])
    ),
    ("rextime", {"options": None}, "options"),  # as in GitHub's file
]


@pytest.mark.parametrize(("name", "changes", "field"), MALFORMED)
def test_a_malformed_row_names_its_field(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RowError) as caught:
        questions(name, first(name, **changes))
    assert str(caught.value).startswith("f.json row 0: ") and f"'{field}'" in str(caught.value)


def test_longvideo_reason_options_out_of_order() -> None:
    problem = "Why?  \nA. Rain  \nB. A call  \nD. Fear  \nC. Fatigue  \n"
    (question,) = questions("longvideo_reason", first("longvideo_reason", problem=problem, answer="<answer>D</answer>"))
    assert (question.question, question.answer) == ("Why?", "D")
    assert question.options == ("Rain", "A call", "Fatigue", "Fear")


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


def test_cgbench_gold_must_agree() -> None:
    # the letter decides between two options of the same text
    (question,) = questions("cgbench", first("cgbench", choices=["b.", "x", "B"], right_answer="A"))
    assert (question.answer, question.options) == ("A", ("b.", "x", "B"))
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
    with pytest.raises(RowError, match=r"'solution\.clue\[0\]\.timestamp' must"):
        kept(data_source="charades", solution={"clue": [{"timestamp": [9, 3]}]})


@pytest.mark.parametrize(
    "text", ["A. a knife\nB. a spoon", "Options:\n(A) a knife\n(B) a spoon", "A. a knife B. a spoon"]
)
def test_seeker173k_s_options_in_one_text(text: str) -> None:
    (question,) = questions("seeker173k", first("seeker173k", options=text))
    assert (question.options, question.answer) == (("a knife", "a spoon"), "B")


def test_perception_test_flat() -> None:
    raw = {
        "video_name": "video_1",
        "question_id": 4,
        "question": "Up?",
        "options": ["yes", "no"],
        "answer_id": "1",
        "area": "memory",
        "reasoning": "descriptive",
        "tag": "change",
    }
    (question,) = questions("perception_test", raw, "val")
    assert (question.id, question.answer, question.extra["tags"]) == ("video_1-4", "B", ["change"])


def test_clevrer_several_right_options_are_unsupported() -> None:
    raw = SAMPLES["clevrer"].rows[0]
    only = {**raw, "questions": [raw["questions"][2]]}
    with pytest.raises(UnsupportedRow, match=r"'questions\[0\]\.choices': 2 of 2 options are right"):
        questions("clevrer", only)


def test_llava_video_open_ended_and_captions() -> None:
    turns = [{"from": "human", "value": "<image>\nTell.\nA. x\nB. y"}, {"from": "gpt", "value": "B. Long ago."}]
    raw = {"id": "1", "video": "v.mp4", "conversations": turns}
    (question,) = questions("llava_video", raw, "open_ended", "a_oe.json")
    assert (question.question, question.options, question.answer) == ("Tell.\nA. x\nB. y", (), "B. Long ago.")


def test_videoespresso_training_rows_are_open_ended() -> None:
    raw = {"video_path": "v.mp4", "question": "Why?", "answer": "It rained.", "task": "Cause", "evidence": ""}
    (question,) = questions("videoespresso", raw, "train")
    assert (question.options, question.answer) == ((), "It rained.")


def test_longvideobench_parquet() -> None:
    raw = {key: value for key, value in SAMPLES["longvideobench"].rows[0].items() if key != "candidates"}
    options = {"option0": "0", "option1": "x", "option2": "y", "option3": "N/A", "option4": "N/A"}
    (question,) = questions("longvideobench", {**raw, **options})
    assert (question.options, question.answer) == (("0", "x", "y"), "B")


@pytest.mark.parametrize(("split", "ids"), [("short", ["001-1"]), ("medium", []), ("long", ["601-1"])])
def test_videomme_by_length(split: str, ids: list[str]) -> None:
    rows = SAMPLES["videomme"].rows
    assert [question.id for raw in rows for question in questions("videomme", raw, split)] == ids


def test_mlvu_tasks() -> None:
    raw = {"video": "a.mp4", "duration": 9, "question": "Tell.", "answer": "A story.", "question_type": "subPlot"}
    assert questions("mlvu", raw, "dev", "json/8_sub_scene.json") == []
    (question,) = questions("mlvu", raw, "dev_generation", "json/8_sub_scene.json")
    assert (question.extra["category"], question.options, question.answer) == ("sub_scene", (), "A story.")
    assert question.videos == ("8_sub_scene/a.mp4", "sub_scene/a.mp4")
    assert question.exact_video
    inlined = {
        "video_name": "x/a.mp4",
        "duration": 9,
        "question": "Who?\n(A) he\n(B) she",
        "answer": "B",
        "task_type": "ego",
        "question_id": "Q1",
    }
    (question,) = questions("mlvu", inlined, "test", "test.parquet")
    assert (question.id, question.options, question.answer) == ("Q1", ("he", "she"), "B")
    assert question.extra["category"] == "ego"
    assert not question.exact_video
    # lmms-eval's copy of the dev split has the options twice
    twice = {**inlined, "candidates": ["he", "she"]}
    for raw in (twice, {**twice, "question": "Who?"}):
        (question,) = questions("mlvu", raw, "dev", "data/test-00000-of-00001.parquet")
        assert (question.question, question.options, question.answer) == ("Who?", ("he", "she"), "B")
        assert question.videos == ("x/a.mp4",)
    with pytest.raises(RowError, match="holds no options"):
        questions("mlvu", {**inlined, "question": "Who?"}, "dev")
    told = {
        "video": "t.mp4",
        "duration": 9,
        "question": "Who?",
        "candidates": ["he", "she"],
        "answer": "she",
        "question_type": "sportsQA",
        "question_id": "SQ_1",
    }
    (question,) = questions("mlvu", told, "test", "test-ground-truth/test_mcq_gt.json")
    assert (question.id, question.answer, question.extra["category"]) == ("SQ_1", "B", "sportsQA")


def test_mlvu_blank_distractors() -> None:
    raw = first("mlvu", candidates=["", "it is", "it isn't", " "], answer="it isn't")
    (question,) = questions("mlvu", raw, "dev", "json/2_needle.json")
    assert (question.options, question.answer) == (("it is", "it isn't"), "B")
    for change in ({"answer": ""}, {"candidates": ["", "it is", ""], "answer": "it is"}, {"question": ""}):
        with pytest.raises(RowError, match=r"field '(answer|candidates|question)' must"):
            questions("mlvu", {**raw, **change}, "dev", "json/2_needle.json")


def test_lvbench_one_bad_question_leaves_the_others() -> None:
    raw = SAMPLES["lvbench"].rows[0]
    bad = {**raw, "qa": [{**raw["qa"][0], "answer": "E"}, raw["qa"][1], "nothing"]}
    found = list(CONVERTERS["lvbench"].convert(Fields(bad, "f.jsonl line 1"), "test"))
    assert isinstance(found[0], RowError)
    assert "f.jsonl line 1: field 'qa[0].answer' must be a letter from A to D" in str(found[0])
    assert isinstance(found[1], Question)
    assert isinstance(found[2], RowError)


def test_lvbench_flat() -> None:
    raw = {
        "uid": "1",
        "video_path": "v.mp4",
        "question": "Who?",
        "options": ["a", "b"],
        "answer": "B",
        "question_type": ["summarization"],
    }
    (question,) = questions("lvbench", raw)
    assert (question.videos, question.options, question.answer) == (("v.mp4",), ("a", "b"), "B")


def test_lsdbench_time_range() -> None:
    (question,) = questions("lsdbench", first("lsdbench", time_range={"start": "00:10:00", "end": "00:11:00"}))
    assert question.extra["time_range"] == "00:10:00-00:11:00"
    (question,) = questions("lsdbench", first("lsdbench", time_range="00:10-00:11"))
    assert question.extra["time_range"] == "00:10-00:11"


def test_mvbench_needs_a_task() -> None:
    raw = SAMPLES["mvbench"].rows[0]
    (question,) = questions("mvbench", raw, file="scene_transition/train-0.parquet")
    assert question.videos == ("scene_qa/video/ZS9XR.mp4",)
    assert question.exact_video  # names repeat between the folders of the tasks
    with pytest.raises(RowError, match="2 options"):
        questions("mvbench", first("mvbench", candidates=["Ran.", "Ran."]), file="json/action_count.json")


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


def test_video_mmlu_caption() -> None:
    (question,) = questions("video_mmlu", SAMPLES["video_mmlu"].rows[0], "caption")
    assert (question.id, question.options, question.answer) == ("m1-caption", (), "What is drawn? A cone")
    assert question.extra["qa_list"] == '[{"question": "What is drawn?", "answer": "A cone"}]'
    with pytest.raises(RowError, match="'captions_qa' has no question with an answer"):
        questions("video_mmlu", first("video_mmlu", captions_qa=[]), "caption")


def test_timesearch_s_rows_without_a_kind_are_choices_where_there_are_options() -> None:
    raw = first("timesearch")
    del raw["type"]
    (question,) = questions("timesearch", raw)
    assert (question.answer, question.extra["type"]) == ("B", "multiple_choice")
    (question,) = questions("timesearch", {**raw, "question": "What?", "target": {"answer": "a cup"}})
    assert (question.answer, question.extra["type"], question.answer_type) == ("a cup", "open_ended", None)


@pytest.mark.parametrize("dress", ["{}: {}", "({}) {}"])
def test_eva_line_breaks_as_a_backslash_and_an_n(dress: str) -> None:
    lines = ["Which?", *(dress.format(letter, text) for letter, text in (("A", "x"), ("B", "a\\nabla")))]
    gold = {"style": "rule", "ground_truth": "B", "reward_fn": "mc"}
    raw = first("eva", prompt=[{"role": "user", "content": "\\n".join(lines)}], reward_model=gold)
    (question,) = questions("eva", raw, file="l.jsonl")
    assert (question.question, question.options[0], question.answer) == ("Which?", "x", "B")
    # where there are line breaks, a backslash and an n stays what it is
    raw = first("eva", prompt=[{"role": "user", "content": "\n".join(lines)}])
    assert questions("eva", raw, file="l.jsonl")[0].options == ("x", "a\\nabla")


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


def test_temporalbench_caption() -> None:
    raw = {"idx": 3, "video_name": "a.mp4", "question": "<video>\nTell all.", "GT": "A man sits."}
    (question,) = questions("temporalbench", raw, "short_caption")
    assert (question.id, question.question, question.options) == ("short_caption-3", "Tell all.", ())


def test_tempcompass_tasks() -> None:
    base = {"video_id": "1", "dim": "speed"}
    (yes,) = questions("tempcompass", {**base, "question": "Is it fast?", "answer": "no"}, "yes_no")
    assert (yes.options, yes.answer) == (("Yes", "No"), "B")
    asked = "Which fits?\nCaption A: It is fast.\nCaption B: It is slow."
    (match,) = questions(
        "tempcompass", {**base, "question": asked, "answer": "Caption B: It is slow."}, "caption_matching"
    )
    assert (match.question, match.options, match.answer) == ("Which fits?", ("It is fast.", "It is slow."), "B")
    numbered = asked.replace("Caption A", "Option 1").replace("Caption B", "Option 2")
    raw = {**base, "question": numbered, "answer": "Option 1: It is fast."}
    assert questions("tempcompass", raw, "caption_matching")[0].answer == "A"
    for answer in ("Caption C: It is slow.", "Caption A: It is slow.", "B"):
        with pytest.raises(RowError, match="'answer'"):
            questions("tempcompass", {**base, "question": asked, "answer": answer}, "caption_matching")
    with pytest.raises(RowError, match="'question' must hold a question and lines"):
        questions("tempcompass", {**base, "question": "Which?", "answer": "Caption A: x"}, "caption_matching")
    (told,) = questions(
        "tempcompass",
        {**base, "question": "Tell.", "mc_question": "Fast?\nA. yes", "mc_answer": "A. yes"},
        "captioning",
    )
    assert (told.options, told.answer, told.extra["mc_question"]) == ((), "A. yes", "Fast?\nA. yes")


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


def test_elv_halluc_gold_must_fit_the_caption() -> None:
    with pytest.raises(RowError, match="'ref_answer' must be No for in_video"):
        questions("elv_halluc", first("elv_halluc", caption_type="in_video"))
    (question,) = questions("elv_halluc", first("elv_halluc"), number=5)
    assert question.extra["triplet"] == "1"


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


def test_qvhighlights_without_ratings() -> None:
    row = first("qvhighlights", relevant_clip_ids=None, saliency_scores=None)
    (question,) = questions("qvhighlights", row)
    assert "relevant_clip_ids" not in question.extra


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


def test_rextime_without_a_length() -> None:
    """Loaders of the hub's file take the length from elsewhere."""
    (question,) = questions("rextime", first("rextime", duration=None))
    assert question.extra["duration"] is None and question.windows == ((5.0, 8.0),)
