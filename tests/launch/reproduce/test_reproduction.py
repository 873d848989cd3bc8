"""What a reproduction would do."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentic_video.config.overrides import parse_overrides
from agentic_video.launch.reproduce import reproduction as module
from agentic_video.launch.reproduce.chain import ChainStage, read_chain
from agentic_video.launch.reproduce.plan import plan_text
from agentic_video.launch.reproduce.reproduction import ReproduceOptions, Reproduction, option_of, profile_of, put_in
from agentic_video.launch.reproduce.run import run_steps
from agentic_video.launch.reproduce.state import StageRecord, State, difference
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES
from tests.launch.reproduce.chains import STAGES, actions, chain_of, reproduction


def test_at_first_everything_is_run(tmp_path: Path) -> None:
    made = reproduction(tmp_path)
    assert actions(made) == {"rows": "run", "taught": "run", "judged": "run"}
    assert made.missing(0, {}) == [] and made.changed() == []
    text = plan_text(made, [])
    assert text.startswith("REHEARSAL of VideoZoomer on the synthetic world")
    assert "$ TRAIN_FILES='{rows.train}' agentic-video copy '{rows.train}' " in text
    assert text.splitlines()[-1] == "nothing is missing"


@pytest.mark.usefixtures("program")
class TestAfterARun:
    @pytest.fixture(autouse=True)
    def whole(self, tmp_path: Path, program: None) -> None:
        assert run_steps(reproduction(tmp_path), {}) == 0

    def test_whole_stages_stay(self, tmp_path: Path) -> None:
        assert actions(reproduction(tmp_path)) == dict.fromkeys(("rows", "taught", "judged"), "complete")

    def test_a_changed_download_is_reported(self, tmp_path: Path) -> None:
        (tmp_path / "data" / "raw" / "rows.json").write_text("[1, 2]")
        made = reproduction(tmp_path)
        assert actions(made) == {"rows": "changed", "taught": "complete", "judged": "complete"}
        (line,) = made.changed()
        assert line.startswith("rows: its input data/raw changed since it was made in ")
        assert "--redo rows makes it and what follows again, --keep rows takes it as it is" in line

    def test_a_changed_output_is_reported_where_it_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "out" / "rows" / "rows.jsonl").write_text("[3]")
        assert actions(reproduction(tmp_path)) == {"rows": "complete", "taught": "changed", "judged": "changed"}

    def test_a_changed_command_is_reported(self, tmp_path: Path) -> None:
        made = reproduction(tmp_path, words=(("taught", "--more=1"),))
        assert actions(made) == {"rows": "complete", "taught": "changed", "judged": "complete"}
        assert made.changed()[0].startswith("taught: its command changed (now with --more=1) since")

    def test_redo_makes_what_follows_again(self, tmp_path: Path) -> None:
        made = reproduction(tmp_path, redo=("taught",))
        assert actions(made) == {"rows": "complete", "taught": "again", "judged": "again"}

    def test_keep(self, tmp_path: Path) -> None:
        (tmp_path / "data" / "raw" / "rows.json").write_text("[1, 2]")
        made = reproduction(tmp_path, keep=("rows",))
        assert actions(made) == {"rows": "keep", "taught": "complete", "judged": "complete"}
        assert run_steps(made, {}) == 0
        assert actions(reproduction(tmp_path)) == dict.fromkeys(("rows", "taught", "judged"), "complete")
        with pytest.raises(SetupError, match="rows: either made again or kept, not both"):
            _ = reproduction(tmp_path, keep=("rows",), redo=("rows",)).steps

    def test_an_output_that_is_gone_is_made_again_only_for_who_needs_it(self, tmp_path: Path) -> None:
        (tmp_path / "out" / "rows" / "rows.jsonl").unlink()
        assert actions(reproduction(tmp_path)) == {"rows": "not needed", "taught": "complete", "judged": "complete"}
        (tmp_path / "out" / "judged" / "report.json").unlink()
        made = reproduction(tmp_path)
        assert actions(made) == {"rows": "again", "taught": "changed", "judged": "again"}
        assert made.changed()[0].startswith("taught: its input rows is made again")

    def test_until(self, tmp_path: Path) -> None:
        assert actions(reproduction(tmp_path, until="taught")) == {"rows": "complete", "taught": "complete"}


def test_given_outputs_need_no_stage(tmp_path: Path) -> None:
    model = tmp_path / "released.bin"
    made = reproduction(tmp_path, given={("taught", "model"): model})
    assert actions(made) == {"rows": "run", "taught": "given", "judged": "run"}
    assert made.missing(0, {}) == [f"--given taught.model={model}: no such file or folder"]
    model.write_text("1")
    assert made.missing(0, {}) == []
    assert made.values(made.stages[2])["taught", "model"] == str(model)


def test_what_only_a_given_stage_needs_is_not_run(tmp_path: Path) -> None:
    judged = {**STAGES[2], "run": "agentic-video copy {taught.model} {folder}/report.json"}
    made = reproduction(tmp_path, *STAGES[:2], judged, given={("taught", "model"): tmp_path / "released.bin"})
    assert actions(made) == {"rows": "not needed", "taught": "given", "judged": "run"}


def test_a_given_stage_must_give_all_that_is_read(tmp_path: Path) -> None:
    taught = {**STAGES[1], "makes": {"model": "*.bin", "log": "*.log"}}
    judged = {**STAGES[2], "run": "agentic-video copy {taught.model} {taught.log} {folder}/report.json"}
    (tmp_path / "m").write_text("")
    made = reproduction(tmp_path, STAGES[0], taught, judged, given={("taught", "model"): tmp_path / "m"})
    assert made.missing(0, {}) == ["judged: needs taught.log, which isn't given: --given taught.log=PATH"]


def test_what_is_missing_is_a_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    stage = {
        "name": "taught",
        "about": "a model",
        "run": "agentic-video eval {data}/mlvu/x {data}/mine/x {judge} --model {base} {folder}",
        "row": {"benchmark": "mlvu_dev"},
    }
    more = {"settings": {"judge": "address of a judge", "unused": "of nobody"}, "data": {"mine": "my own videos"}}
    data = tmp_path / "data"
    options = ReproduceOptions(tmp_path / "out", data, base="./nowhere")
    made = Reproduction(chain_of(tmp_path, stage, mode="paper", **more), options, State(tmp_path / "out"))
    lines = made.missing(0, {})
    assert [line.partition(":")[0] for line in lines] == [
        str(data / "mlvu"),
        str(data / "mine"),
        "--set judge=...",
        "--base ./nowhere",
        "GPUs",
        "vLLM",
    ]
    assert "RAY_ADDRESS serves GRPO only" in made.missing(0, {"RAY_ADDRESS": "auto"})[4]
    assert made.missing(8, {})[-1] == "vLLM: isn't installed in this environment; agentic-video install gpu"
    assert "none (for taught" in lines[4]
    text = plan_text(made, lines)
    assert "missing (6):" in text and "Hugging Face: MLVU/MVLU" in text and "my own videos" in text
    assert "unused" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"words": (("nobody", "a=1"),)}, "nobody: no such stage"),
        ({"until": "nobody"}, "nobody: no such stage"),
        ({"redo": ("nobody",)}, "nobody: no such stage"),
        ({"keep": ("taught",)}, "--keep taught: it has made no folder yet"),
        ({"given": {("taught", "modle"): Path("x")}}, "--given taught.modle: taught makes folder, model"),
        ({"settings": {"judge": "x"}}, "--set judge: there is no such setting; there are none"),
    ],
)
def test_names_that_do_not_exist(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        _ = reproduction(tmp_path, **options).steps


def test_a_folder_that_has_been_moved_is_the_same(tmp_path: Path, program: None) -> None:
    assert run_steps(reproduction(tmp_path / "a"), {}) == 0
    (tmp_path / "a").rename(tmp_path / "b")
    assert set(actions(reproduction(tmp_path / "b")).values()) == {"complete"}


@pytest.mark.parametrize(
    ("words", "profile"),
    [
        ((), "cluster"),
        (("--profile", "single"), "single"),
        (("a", "--profile=laptop"), "laptop"),
        (("--profile=four", "--profile", "single"), "single"),
    ],
)
def test_profiles(words: tuple[str, ...], profile: str) -> None:
    assert profile_of(words, "cluster") == profile


@pytest.mark.parametrize("words", [("--profile",), ("--profile=x",)])
def test_a_profile_that_does_not_exist(words: tuple[str, ...]) -> None:
    with pytest.raises(SetupError, match="there are laptop, cluster"):
        profile_of(words, "cluster")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("http://host:8000/v1", "a.b=http://host:8000/v1"),
        ("https://x/v1?api-version=2024", "a.b='https://x/v1?api-version=2024'"),
        ("12345", "a.b='12345'"),
        ("my model, v2", "a.b='my model, v2'"),
        ("it's {x}", r"a.b='it\'s {x}'"),
    ],
)
def test_a_setting_in_an_override_is_read_as_that_text(value: str, word: str) -> None:
    values = {("judge", ""): value}
    assert put_in("a.b={judge}", values) == word
    assert [item.value() for item in parse_overrides([word, put_in("a=[{judge},c]", values)])] == [value, [value, "c"]]
    assert put_in("{judge}", values) == value and put_in("--judge={judge}", values) == f"--judge={value}"
    assert put_in("a.b={other}", values) == "a.b={other}" and put_in("a.b=x", values) == "a.b=x"


def test_a_config_is_composed_with_the_settings(tmp_path: Path) -> None:
    address = "https://x/v1?api-version=2024-10-21"
    options = ReproduceOptions(tmp_path / "out", tmp_path, settings={"judge": address, "judge_model": "12345"})
    made = Reproduction(read_chain(RECIPES / "videozoomer", "paper"), options, State(tmp_path / "out"))
    grpo = made.chain.stage("grpo")
    config = made.config(grpo)
    assert config is not None and made.steps
    assert (config.agentic_video.judge.base_url, config.agentic_video.judge.model) == (address, "12345")
    assert f"agentic_video.judge.base_url='{address}'" in made.words(grpo)
    wrong = replace(options, words=(("grpo", "agentic_video.judge.modle={judge_model}"),))
    with pytest.raises(SetupError, match=r"grpo: agentic_video\.judge\.modle: no such key"):
        _ = Reproduction(made.chain, wrong, made.state).steps


def test_another_judge_or_other_weights_are_noticed(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "config.json").write_text("{}")
    (base / "w.safetensors").write_text("1")
    named = {"judge": "http://one/v1", "judge_model": "large"}
    options = ReproduceOptions(tmp_path / "out", tmp_path, base=str(base), settings=named)
    chain, state = read_chain(RECIPES / "videozoomer", "paper"), State(tmp_path / "out")
    agent, plain, rows = (chain.stage(f"{who}-lvbench") for who in ("agent", "base", "rows"))

    def said(stage: ChainStage, **settings: str) -> str:
        before = Reproduction(chain, options, state).settings(stage)
        changed = replace(options, settings={**named, **settings})
        if not settings:
            (base / "w.safetensors").write_text((base / "w.safetensors").read_text() + "2")
        return difference(before, Reproduction(chain, changed, state).settings(stage))

    assert said(agent, judge_model="tiny") == 'its setting judge_model changed ("large", now "tiny")'
    assert said(agent, judge="http://two/v1") == said(rows, judge_model="tiny") == said(agent) == said(rows) == ""
    assert said(plain) == "the files of its base model changed"


@pytest.mark.parametrize(
    ("run", "needs", "on_ray"),
    [
        ("convert mlvu --source {data}/mlvu", "", ""),
        ("distill --recipe r --teacher http://t/v1", "", ""),
        ("distill --recipe r --teacher models/teacher", "GPUs, vLLM", "GPUs, vLLM"),
        ("eval --recipe r --model {base}", "GPUs, vLLM", "GPUs, vLLM"),
        ("eval --recipe r --model=http://m/v1", "", ""),
        ("eval --recipe r --model {base} --engine my.Backend", "", ""),
        ("classify --recipe r --base {base}", "GPUs, vLLM", "GPUs, vLLM"),
        ("classify --recipe r --base-results x", "", ""),
        ("run r sft", "GPUs", "GPUs"),
        ("run r", "GPUs, vLLM", "vLLM"),
        ("run r --profile laptop", "vLLM", "vLLM"),
    ],
)
def test_only_what_trains_or_plays_here_needs_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: str, needs: str, on_ray: str
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    (tmp_path / "data" / "mlvu").mkdir(parents=True)
    made = reproduction(tmp_path, {"name": "one", "about": "one", "run": f"agentic-video {run}"}, mode="paper")

    def missing(environment: dict[str, str]) -> str:
        return ", ".join(line.partition(":")[0] for line in made.missing(0, environment))

    assert missing({}) == needs and missing({"RAY_ADDRESS": "auto"}) == on_ray


def test_options_of_a_command() -> None:
    words = ("eval", "--model", "a", "--model=b", "--data", "x")
    assert [option_of(words, item) for item in ("--model", "--data", "--out", "")] == ["b", "x", "", ""]


@pytest.mark.usefixtures("program")
def test_what_failed_on_wrong_data_and_made_nothing_just_runs_when_they_are_mended(tmp_path: Path) -> None:
    run = "agentic-video check {data}/raw/rows.json {folder}/rows.jsonl"
    stages = ({**STAGES[0], "run": run}, *STAGES[1:])
    rows = tmp_path / "data" / "raw" / "rows.json"
    assert rows.parent.mkdir(parents=True) is None and rows.write_text("[")
    assert run_steps(reproduction(tmp_path, *stages), {}) == 1
    rows.write_text("[1]")
    made = reproduction(tmp_path, *stages)
    assert actions(made) == {"rows": "resume", "taught": "run", "judged": "run"} and made.changed() == []
    assert "and made nothing; since then its input data/raw changed" in made.steps[0].note
    assert run_steps(made, {}) == 0
    assert set(actions(reproduction(tmp_path, *stages)).values()) == {"complete"}


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(("makes", "keep"), [({"mark": "mark"}, True), ({"mark": "mark", "done": "done"}, False)])
def test_what_was_begun_is_kept_only_where_all_of_it_is_there(tmp_path: Path, makes: Any, keep: bool) -> None:
    run = "agentic-video fail-once {folder}/mark {data}/raw"
    stage = {"name": "two", "about": "two", "run": run, "makes": makes}
    assert run_steps(reproduction(tmp_path, stage), {}) == 1
    (tmp_path / "data" / "raw" / "rows.json").write_text("[1, 2]")
    (line,) = reproduction(tmp_path, stage).changed()
    assert "since it was begun in " in line and "--redo two makes it" in line
    assert ("--keep two takes it as it is" in line) == keep


def converted(folder: Path, words: str = "", **more: Any) -> Reproduction:
    """A chain of one conversion that has been done as its report says, when the first of its videos was there."""
    run = f"agentic-video convert lvbench {words} --source {{data}}/raw --out {{folder}}/rows.jsonl"
    stage = {"name": "rows", "about": "rows", "run": run, "makes": {"rows": "rows.jsonl"}}
    (folder / "data" / "raw").mkdir(parents=True)
    (folder / "data" / "raw" / "rows.json").write_text("[]")
    (folder / "data" / "raw" / "1.mp4").write_text("1")
    before = reproduction(folder, stage, mode="paper")
    home = folder / "out" / "rows"
    home.mkdir(parents=True)
    (home / "rows.jsonl").write_text("{}")
    report = {"rows": 3, "limit": None, "counts": {"missing_video": 9}, **more}
    (home / "rows.report.json").write_text(json.dumps(report))
    settings = before.settings(before.stages[0])
    before.state.write("rows", StageRecord(replace(settings, **more.get("settings", {})), finished="then"))
    return reproduction(folder, stage, mode="paper")


def test_videos_that_came_later_are_reported_where_some_were_missing(tmp_path: Path) -> None:
    made = converted(tmp_path)
    assert actions(made) == {"rows": "complete"}
    (tmp_path / "data" / "raw" / "1.mp4").write_text("another")  # isn't looked into
    assert actions(Reproduction(made.chain, made.options, made.state)) == {"rows": "complete"}
    deep = tmp_path / "data" / "raw" / "deep"
    deep.mkdir()
    (deep / "2.MP4").write_text("2")
    made = Reproduction(made.chain, made.options, made.state)
    (line,) = made.changed()
    assert line.startswith(
        f"rows: the videos in {tmp_path}/data/raw changed, of which 9 questions lacked theirs since "
    )
    assert "--redo rows" in line and "--keep rows" in line


def test_a_plan_looks_through_a_folder_of_videos_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []

    def video_names(folder: Path) -> str:
        looked.append(folder)
        return "names"

    monkeypatch.setattr(module, "video_names", video_names)
    item = "agentic-video convert star --source {data}/raw --out {folder}/rows.jsonl"
    stages = [{"name": name, "about": name, "run": item, "makes": {"train": "rows.jsonl"}} for name in ("a", "b")]
    made = reproduction(tmp_path, *stages, mode="paper")
    assert actions(made) == {"a": "run", "b": "run"}
    assert looked == [tmp_path / "data" / "raw"]
    # a stage that starts is looked at anew
    assert made.settings(made.stages[0]).videos == "names" and len(looked) == 2


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("", {"counts": {}}),
        ("--limit 3", {"limit": 3}),  # has what it wanted
        ("", {"settings": {"videos": ""}}),  # as earlier versions noted it
        ("--videos {data}/other", {}),  # where nothing changes
    ],
)
def test_videos_that_change_nothing(tmp_path: Path, words: str, more: dict[str, Any]) -> None:
    (tmp_path / "data" / "other").mkdir(parents=True)
    made = converted(tmp_path, words, **more)
    (tmp_path / "data" / "raw" / "2.mp4").write_text("2")
    assert actions(made) == {"rows": "complete"}
