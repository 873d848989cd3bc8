import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig, OmegaConf

from agentic_video.graders.base import Graders
from agentic_video.launch import inputs as looking
from agentic_video.launch.inputs import (
    CheckedData,
    Inputs,
    absolutize_overrides,
    check_inputs,
    input_overrides,
    named_inputs,
    require_inputs,
)
from agentic_video.launch.options import LaunchOptions, Profile, Stage
from agentic_video.systems.base import Grader
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.row import VideoQA
from agentic_video.types.score import Score
from agentic_video.types.trajectory import Trajectory
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES
from tests.launch.checkpoints import write_checkpoint

OPTIONS = LaunchOptions(RECIPES / "videozoomer")


def config_of(
    system: str = "videozoomer.VideoZoomer", constants: Mapping[str, object] = {}, **more: object
) -> DictConfig:
    target = system if system.startswith("tests.") else f"agentic_video.systems.{system}"
    block = {"system": {"_target_": target, **constants}}
    return OmegaConf.merge({"data": {"train_batch_size": 6}, "agentic_video": block}, more)  # type: ignore[return-value]


CONFIG = config_of()
JUDGED = (
    "videozoomer.VideoZoomer",
    "framethinker.FrameThinker",
    "framemind.FrameMind",
    "longvt.LongVT",
    "timesearch.TimeSearch",
    "videoo3.VideoO3",
)
"""The systems whose open answers a judge grades, whatever their constants."""


@dataclass(frozen=True)
class Own(VideoZoomer):
    """A system whose own reward needs no grader."""

    def needs(self, qa: VideoQA) -> Mapping[Grader, str]:
        return {}

    async def score(self, trajectory: Trajectory, qa: VideoQA, graders: Graders) -> Score:
        return Score(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Renamed(VideoZoomer):
    """A system with another's reward."""


def write_rows(folder: Path, count: int, video: str = "v.mp4", **fields: object) -> str:
    (folder / "v.mp4").write_bytes(b"video")
    row = {"data_source": "mine", "video": video, "question": "?", "options": ["x", "y"], "answer": "A", **fields}
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps({'id': str(number), **row})}\n" for number in range(count)))
    return str(file)


def write_records(folder: Path, *systems: str) -> str:
    (folder / "v.mp4").write_bytes(b"video")
    row = {"id": "1", "video": "v.mp4", "question": "?", "answer": "red"}
    played = {"qa_id": "1", "opening": [], "turns": [], "end": "answer"}
    lines = [{"version": 2, "video_qa": row, "trajectory": {**played, "system": system}} for system in systems]
    file = folder / "records.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(file)


def check(
    inputs: Inputs,
    profile: Profile = "laptop",
    options: LaunchOptions = OPTIONS,
    config: DictConfig = CONFIG,
    elsewhere: bool = False,
) -> CheckedData:
    return check_inputs(inputs, options, profile, config, elsewhere=elsewhere)


def test_overrides_come_before_variables() -> None:
    environment = {"MODEL_PATH": "m", "TRAIN_FILES": "t", "VAL_FILES": "v"}
    assert named_inputs("grpo", [], environment) == Inputs("m", ("t",), ("v",))
    overrides = ["actor_rollout_ref.model.path=o", "data.train_files=[a,b]", "data.val_files=c"]
    assert named_inputs("grpo", overrides, environment) == Inputs("o", ("a", "b"), ("c",))
    assert named_inputs("sft", ["model.path=o"], {}) == Inputs("o")
    assert named_inputs("grpo", [], {"TRAIN_FILES": "t"}) == Inputs("", ("t",), ("t",))
    assert named_inputs("sft", [], {"TRAIN_FILES": "a, b ,", "VAL_FILES": " c"}) == Inputs("", ("a", "b"), ("c",))
    assert named_inputs("sft", [], {"TRAIN_FILES": "t"}) == Inputs("", ("t",))
    assert named_inputs("grpo", [], {"VAL_FILES": "v"}) == Inputs("", (), ("v",))


def test_files_may_be_below_one_s_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = write_rows(tmp_path, 6)
    for named in ("~/rows.jsonl", "~/rows.jsonl,~/rows.jsonl"):
        inputs = named_inputs("grpo", [], {"TRAIN_FILES": named})
        assert set(inputs.train) == {rows} and check(inputs).rows == 6 * len(inputs.train)
    assert named_inputs("sft", ["data.train_files=['~/a','~/b']"], {}).train == (f"{tmp_path}/a", f"{tmp_path}/b")


def test_a_single_file_may_have_commas_in_its_name(tmp_path: Path) -> None:
    file = str(tmp_path / "kitchen, day 1.jsonl")
    Path(file).touch()
    assert named_inputs("sft", [], {"TRAIN_FILES": file, "VAL_FILES": f"{file}l"}) == Inputs(
        "", (file,), (str(tmp_path / "kitchen"), "day 1.jsonll")
    )
    assert named_inputs("sft", [f"data.train_files='{file}'"], {}).train == (file,)
    many = [f"{tmp_path}/{number:03}.jsonl" for number in range(200)]
    assert named_inputs("sft", [], {"TRAIN_FILES": ",".join(many)}).train == tuple(many)


def test_a_cluster_s_job_without_model_or_data_says_what_to_set() -> None:
    with pytest.raises(SetupError, match=r"^MODEL_PATH and TRAIN_FILES not set, which the single profile needs"):
        require_inputs(Inputs(), "single", "grpo")
    with pytest.raises(SetupError, match=r"^TRAIN_FILES not set.* parquet or jsonl file of rows .*docs/data\.md"):
        require_inputs(Inputs("m"), "cluster", "grpo")
    with pytest.raises(SetupError, match=r"jsonl file of trajectory records .*docs/data\.md"):
        require_inputs(Inputs(), "cluster", "sft")
    for profile in ("laptop", "rehearsal"):
        require_inputs(Inputs(), profile, "grpo")  # type: ignore[arg-type]
    require_inputs(Inputs("m", ("t",)), "cluster", "kto")


def test_what_is_named_reaches_verl_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m", "a"):
        (tmp_path / name).touch()
    assert input_overrides(Inputs("owner/model"), "grpo") == ["actor_rollout_ref.model.path='owner/model'"]
    assert input_overrides(Inputs("m", ("a", "/b"), ("a",)), "sft") == [
        f"model.path='{tmp_path}/m'",
        f"data.train_files=['{tmp_path}/a','/b']",
        f"data.val_files=['{tmp_path}/a']",
    ]
    assert input_overrides(Inputs(), "grpo") == []


def test_a_user_s_files_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.jsonl", "reward.py", "p.txt"):
        (tmp_path / name).touch()
    overrides = [
        "data.train_files=rows.jsonl",  # is among what input_overrides gives
        "agentic_video.reward.path=reward.py",
        "++agentic_video.system.prompt=p.txt",
        "agentic_video.system.subagent_prompt=paravt_subagent",
        "trainer.total_epochs=2",
    ]
    assert absolutize_overrides(overrides, "grpo") == [
        f"agentic_video.reward.path='{tmp_path}/reward.py'",
        f"++agentic_video.system.prompt='{tmp_path}/p.txt'",
        "agentic_video.system.subagent_prompt=paravt_subagent",
        "trainer.total_epochs=2",
    ]
    assert absolutize_overrides(["model.path=m", "data.val_files=null"], "sft") == ["data.val_files=null"]
    elsewhere = "data.train_files='${oc.env:DATA}/t.parquet'"
    assert absolutize_overrides([elsewhere], "grpo") == [elsewhere]


def test_a_checkpoint_to_go_on_from_must_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_2"
    config = config_of(trainer={"resume_mode": "resume_path", "resume_from_path": str(folder)})
    check(Inputs(), config=config, elsewhere=True)
    with pytest.raises(SetupError, match=rf"^trainer\.resume_from_path: {folder}: no such folder$"):
        check(Inputs(), config=config)
    folder.mkdir()
    check(Inputs(), config=config)


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
@pytest.mark.parametrize("model", ["/no/such", "./none", "none"])
def test_a_model_that_is_not_there_is_refused(model: str, profile: Profile) -> None:
    with pytest.raises(SetupError, match=f"^MODEL_PATH={model}: no such folder"):
        check(Inputs(model), profile)


def test_a_name_on_the_hub_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "_hub_problem", lambda name: "" if name == "owner/model" else "there is none")
    check(Inputs("owner/model"), "cluster")
    with pytest.raises(SetupError, match=r"^MODEL_PATH=owner/mode: no such folder, and there is none$"):
        check(Inputs("owner/mode"), "cluster")
    with pytest.raises(SetupError, match="without a GPU nothing is downloaded"):
        check(Inputs("owner/model"), "laptop")


@pytest.mark.parametrize("kind", ["qwen2", "qwen3_vl"])
def test_what_is_in_the_hub_s_cache_must_be_trainable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": kind}))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda model, file: str(config))
    if kind == "qwen3_vl":
        check(Inputs("owner/model"), "cluster")
    else:
        with pytest.raises(SetupError, match=r"^MODEL_PATH=owner/model: its model_type is 'qwen2'; what can be"):
            check(Inputs("owner/model"), "cluster")


def test_a_hub_that_can_t_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(HfApi, "model_info", refuse)
    with pytest.raises(SetupError, match=r"the hub can't be reached \(ConnectionError\)"):
        check(Inputs("owner/none-such"), "cluster")


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
def test_where_the_model_of_a_run_is_is_said(tmp_path: Path, profile: Profile) -> None:
    model = write_checkpoint(tmp_path / "model")
    with pytest.raises(SetupError, match=rf"^MODEL_PATH={tmp_path} is a run's folder; its model is {model}$"):
        check(Inputs(str(tmp_path)), profile, elsewhere=True)
    with pytest.raises(SetupError, match=r"^MODEL_PATH=.*config\.json: a file; name its folder$"):
        check(Inputs(str(model / "config.json")), profile, elsewhere=True)
    check(Inputs(str(model)), profile)


def test_a_folder_must_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no checkpoint in Hugging Face's format \(config\.json is missing\)"):
        check(Inputs(str(tmp_path)))
    check(Inputs(str(write_checkpoint(tmp_path / "mine"))))


@pytest.mark.parametrize("stage", ["grpo", "sft", "kto"])
@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", "{", r"MODEL_PATH=\S+: config\.json can't be read: "),
        ("config.json", "[]", r"MODEL_PATH=\S+: config\.json holds no JSON object"),
        (
            "config.json",
            '{"model_type": "qwen2"}',
            r"MODEL_PATH=\S+: its model_type is 'qwen2'; what can be trained is qwen2_5_vl, qwen3_vl$",
        ),
        ("model.safetensors", None, r"MODEL_PATH \S+: no weights in Hugging Face's format there; "),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}',
            r"MODEL_PATH=\S+: model-2\.safetensors is missing, which model\.safetensors\.index\.json lists",
        ),
        ("tokenizer.json", None, r"MODEL_PATH=\S+: no tokenizer \(tokenizer\.json or vocab\.json\): copy it from"),
        ("processor_config.json", None, r"MODEL_PATH=\S+: no image processor \(processor_config\.json or prepro"),
        ("processor_config.json", "{", r"\S+: processor_config\.json can't be read: .*; copy the processor's files"),
        ("processor_config.json", "{}", r"\S+: no image processor .*; copy the processor's files"),
        ("processor_config.json", '{"image_processor": {"size": 3}}', r"\S+: the processor's file can't be read: "),
    ],
)
def test_a_checkpoint_must_be_whole(stage: Stage, file: str, content: str | None, said: str, tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "mine")
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(SetupError, match=f"^{said}"):
        check(Inputs(str(folder)), options=replace(OPTIONS, stage=stage))
    if file == "processor_config.json" and content is None and stage == "grpo":  # another folder's may be named
        check(Inputs(str(folder)), config=config_of(actor_rollout_ref={"model": {"tokenizer_path": "/elsewhere"}}))


def test_cells_of_another_size_than_the_checkpoint_s_are_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "mine")
    config = config_of(constants={"size_factor": 32})
    with pytest.raises(SetupError, match=r"^agentic_video\.system\.size_factor=32: .*size_factor=28$"):
        check(Inputs(str(folder)), config=config)


def test_sizes_that_the_checkpoint_does_not_keep_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "mine")
    check(Inputs(str(folder)))
    assert "note: frames" not in capsys.readouterr().out
    check(Inputs(str(folder)), config=config_of("framethinker.FrameThinker"))
    out = capsys.readouterr().out
    assert "640x360" in out and "644x364" in out and str(folder) in out


def test_a_clip_that_vllm_would_refuse_is_refused_here(tmp_path: Path) -> None:
    """Its cache has room for a batch's tokens, or for the largest image that the processor makes."""
    folder = write_checkpoint(tmp_path / "mine")
    small = {"size": {"shortest_edge": 784, "longest_edge": 1024 * 784}, "patch_size": 14}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": small, "video_processor": small}))
    rollout = {"name": "vllm", "n": 2, "max_num_batched_tokens": 8192, "max_model_len": 32_768}
    engine = {"engine_kwargs": {"vllm": {"limit_mm_per_prompt": {"image": 8, "video": 32}}}}
    config = config_of("timesearch.TimeSearch", actor_rollout_ref={"rollout": {**rollout, **engine}})
    key = "actor_rollout_ref.rollout.max_num_batched_tokens"
    with pytest.raises(SetupError, match=rf"^{key}=8192: .*10240 tokens.* 8192 .*; set {key}=10240"):
        check(Inputs(str(folder)), config=config)
    OmegaConf.update(config, key, 10_240)
    check(Inputs(str(folder)), config=config)


def test_a_large_model_needs_a_gpu_or_the_user_s_word(tmp_path: Path) -> None:
    model = str(write_checkpoint(tmp_path / "mine", 16_000_000_000))
    with pytest.raises(SetupError, match=r"16 GB of weights, but this machine has no GPU .* --profile laptop$"):
        check(Inputs(model))
    check(Inputs(model), options=replace(OPTIONS, profile="laptop"))
    check(Inputs(model), "cluster")


def test_what_is_not_here_may_be_elsewhere() -> None:
    assert check(Inputs("/no/such", ("/none.parquet",), ("/none.parquet",)), "cluster", elsewhere=True) == CheckedData()
    with pytest.raises(SetupError, match=r"^TRAIN_FILES: /none\.parquet: no such file"):
        check(Inputs("", ("/none.parquet",)), "cluster")


def test_rows_that_fill_a_batch_change_nothing(tmp_path: Path) -> None:
    assert check(Inputs(train=(write_rows(tmp_path, 6),))) == CheckedData(rows=6, videos=(str(tmp_path / "v.mp4"),))


def test_a_validation_on_all_training_rows_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 600)
    trainer = {"test_freq": 50, "val_before_train": False}
    inputs, config = Inputs(train=(rows,), val=(rows,)), config_of(trainer=trainer)
    assert check(inputs, "cluster", config=config).rows == 600
    assert capsys.readouterr().out == (
        "warning: VAL_FILES not set: each validation plays 600 rows of TRAIN_FILES (trainer.test_freq=50); "
        "set VAL_FILES, or data.val_max_samples=512\n"
    )
    few = config_of(trainer=trainer, data={"train_batch_size": 6, "val_max_samples": 300})
    never = config_of(trainer=trainer | {"test_freq": -1})
    for quiet in (few, never):
        assert check(inputs, "cluster", config=quiet).rows == 600
    (other := tmp_path / "other").mkdir()
    check(replace(inputs, val=(write_rows(other, 3),)), "cluster", config=config)
    assert capsys.readouterr().out == ""


def test_the_laptop_s_batch_fits_few_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 4)
    fitted = ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4")
    assert check(Inputs(train=(rows,), val=(rows,))) == CheckedData(fitted, 4, (str(tmp_path / "v.mp4"),))
    assert capsys.readouterr().out == f"{rows}: 4 usable rows, so {' '.join(fitted)}\n"


def test_a_batch_that_was_asked_for_is_not_changed(tmp_path: Path) -> None:
    rows = Inputs(train=(write_rows(tmp_path, 4),))
    asked = replace(OPTIONS, overrides=("data.train_batch_size=6",))
    said = r"^data\.train_batch_size=6: only 4 usable rows .*; set data\.train_batch_size=4$"
    with pytest.raises(SetupError, match=said):
        check(rows, options=asked)
    with pytest.raises(SetupError, match=said):
        check(rows, "cluster")


def test_so_many_samples_must_fill_a_batch(tmp_path: Path) -> None:
    rows = Inputs(train=(write_rows(tmp_path, 12),))
    few = OmegaConf.merge(CONFIG, {"data": {"train_max_samples": 2}})
    said = r"^data\.train_max_samples=2 rows don't fill a batch of data\.train_batch_size=6; set \S+=2$"
    with pytest.raises(SetupError, match=said):
        check(rows, config=few)  # type: ignore[arg-type]
    nine = OmegaConf.merge(CONFIG, {"data": {"train_max_samples": 9}})
    assert check(rows, config=nine).rows == 9  # type: ignore[arg-type]


def test_rows_without_a_video_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 6)
    with Path(rows).open("a") as file:
        file.write(Path(rows).read_text().splitlines()[0].replace("v.mp4", "gone.mp4").replace('"0"', '"7"') + "\n")
    assert check(Inputs(train=(rows,))) == CheckedData(rows=6, videos=(str(tmp_path / "v.mp4"),))
    said = capsys.readouterr().out.splitlines()
    assert "gone.mp4: no such file" in said[0] and said[1] == "1 of 7 rows left out"


@pytest.mark.parametrize("stage", ["grpo", "sft"])
def test_what_is_no_file_says_what_it_seems_to_be(stage: Stage, tmp_path: Path) -> None:
    rows = write_rows(tmp_path, 6)
    for named, said in (
        (str(tmp_path), "a folder: name the files in it, separated by commas"),
        (f"{rows} {rows}", "no such file: separate files by commas"),
        (f"{rows}:{rows}l", "no such file: separate files by commas"),
        (f"{tmp_path}/*.jsonl", "no such file, and a pattern isn't expanded: name the files, separated by commas"),
        (f"{tmp_path}/none.jsonl", "no such file"),
    ):
        inputs = named_inputs(stage, [], {"TRAIN_FILES": rows if stage == "grpo" else named, "VAL_FILES": named})
        with pytest.raises(SetupError) as caught:
            check(inputs, options=replace(OPTIONS, stage=stage))
        assert str(caught.value) == f"{'VAL' if stage == 'grpo' else 'TRAIN'}_FILES: {named}: {said}"


def test_rows_of_one_id_are_named_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 6)
    text = Path(rows).read_text()
    Path(rows).write_text(text + text.splitlines()[0] + "\n")  # the same row again is no other question
    assert check(Inputs(train=(rows,))).rows == 7
    assert capsys.readouterr().out == ""
    Path(rows).write_text(text + text.replace('"?"', '"What?"'))
    assert check(Inputs(train=(rows,))).rows == 12
    assert capsys.readouterr().out == (
        f"warning: TRAIN_FILES: {rows} line 7: id '0' of data source 'mine' is that of {rows} line 1 too; "
        "ids must be unique (6 such rows)\n"
    )


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.jsonl").touch()
    for stage in ("grpo", "sft"):
        with pytest.raises(SetupError, match=r"^TRAIN_FILES: .*empty\.jsonl.*: the file is empty$"):
            check(Inputs(train=(str(empty),)), options=replace(OPTIONS, stage=stage))


def test_files_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    rows = write_rows(tmp_path, 4)
    said = r"^TRAIN_FILES: \S+rows\.jsonl: these are rows \(questions\), but sft reads records .*agentic-video distill`"
    with pytest.raises(SetupError, match=said):
        check(Inputs(train=(rows,)), options=replace(OPTIONS, stage="sft"))
    pq.write_table(pa.Table.from_pylist([{"id": "1"}]), tmp_path / "rows.parquet")
    with pytest.raises(SetupError, match=said.replace("jsonl", "parquet")):
        check(Inputs(train=(str(tmp_path / "rows.parquet"),)), options=replace(OPTIONS, stage="sft"))
    records = write_records(tmp_path, "videozoomer")
    with pytest.raises(SetupError, match=r"^VAL_FILES: \S+records\.jsonl: these are records .*, but rows .* are read"):
        check(Inputs(train=(rows,), val=(rows, records)))


def test_a_row_among_records_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = write_records(tmp_path, *["videozoomer"] * 6)
    with Path(records).open("a") as file:
        file.write(Path(write_rows(tmp_path, 1)).read_text())
    assert check(Inputs(train=(records,)), options=replace(OPTIONS, stage="sft")).rows == 6
    said = f"record left out: {records} line 7: is a row (a question), not a record (a finished episode)"
    assert capsys.readouterr().out.splitlines() == [said, "1 of 7 records left out"]


def test_a_record_without_a_video_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = write_records(tmp_path, *["videozoomer"] * 7)
    lines = Path(records).read_text().splitlines()
    Path(records).write_text("\n".join([lines[0].replace("v.mp4", "gone.mp4"), *lines[1:]]))
    assert check(Inputs(train=(records,)), options=replace(OPTIONS, stage="sft")).rows == 6
    gone = tmp_path / "gone.mp4"
    said = f"record left out: {records} line 1: video_qa: field 'video': {gone}: no such file"
    assert capsys.readouterr().out.splitlines() == [said, "1 of 7 records left out"]


OPEN = {"options": [], "answer": "a red ball"}
SERVED = {"base_url": "http://here/v1", "model": "one"}


@pytest.mark.parametrize(
    ("system", "constants", "fields", "said"),
    [
        ("videozoomer.VideoZoomer", {}, {}, None),
        *((name, {}, OPEN, "6 of 6 rows are open ended: set agentic_video.judge.base_url and") for name in JUDGED),
        (
            "eva.Eva",
            {},
            {},
            r"6 of 6 rows are multiple choice, which are verified .*csv=False: set agentic_video\.verifier\.base_url",
        ),
        ("eva.Eva", {"csv": False}, {}, None),
        ("eva.Eva", {}, OPEN, None),  # by ROUGE
        ("paravt.ParaVT", {}, OPEN, None),  # by its words
        ("timesearch.TimeSearch", {}, {**OPEN, "answer": "2-1", "extra_info": {"type": "sequence"}}, None),
        (
            "videobrain.VideoBrain",
            {},
            {"extra_info": {"class": "direct"}},
            "6 of 6 rows are multiple choice, judged unless",
        ),
        ("videobrain.VideoBrain", {"answer_match": "robust"}, {"extra_info": {"class": "direct"}}, None),
        (
            "videobrain.VideoBrain",
            {},
            {},
            r"6 of 6 rows can't be scored: .*the first: row 0: field 'extra_info\.class'",
        ),
        ("tests.launch.test_inputs.Own", {}, OPEN, None),
        ("tests.launch.test_inputs.Renamed", {}, OPEN, "6 of 6 rows are open ended"),
    ],
)
def test_whom_a_reward_asks_must_be_there(
    system: str, constants: dict[str, object], fields: dict[str, object], said: str | None, tmp_path: Path
) -> None:
    rows = Inputs(train=(write_rows(tmp_path, 6, **fields),))
    if said is None:
        assert check(rows, config=config_of(system, constants)).rows == 6
        return
    with pytest.raises(SetupError, match=rf"^\S+rows\.jsonl: {said}"):
        check(rows, config=config_of(system, constants))


def test_a_grader_may_be_named_or_served_or_not_be_wanted(tmp_path: Path) -> None:
    train, val = write_rows(tmp_path, 6), tmp_path / "val.jsonl"
    lines = Path(write_rows(tmp_path, 6)).read_text() + Path(write_rows(tmp_path, 2, **OPEN)).read_text()
    val.write_text(lines)
    write_rows(tmp_path, 6)
    rows = Inputs(train=(train,), val=(str(val),))
    for more in (
        {},
        {"judge": {"base_url": "http://here/v1"}},
        {"reward": {"path": "a.py", "name": "f", "mode": "add"}},
    ):
        with pytest.raises(SetupError, match=r"val\.jsonl: 2 of 8 rows are open ended: "):
            check(rows, config=config_of(agentic_video=more))
    check(rows, config=config_of(agentic_video={"judge": SERVED}))
    check(rows, config=config_of(reward={"reward_model": {"enable": True}}))
    check(rows, config=config_of(agentic_video={"reward": {"path": "a.py", "name": "f"}}))
    # the launcher serves a verifier beside a laptop's job
    eva = config_of("eva.Eva", agentic_video={"toyworld": {"verifier": True}})
    check(Inputs(train=(train,)), config=eva)
    with pytest.raises(SetupError, match="are verified"):
        check(Inputs(train=(train,)), "cluster", config=eva)


def test_a_grader_s_key_that_no_request_can_carry_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Inputs(train=(write_rows(tmp_path, 6),))
    monkeypatch.setenv("A_KEY", "sek\nret")
    with pytest.raises(SetupError, match=r"^A_KEY: no key: it holds line breaks"):
        check(rows, config=config_of(agentic_video={"judge": {**SERVED, "api_key_env": "A_KEY"}}))
    check(rows, config=config_of(agentic_video={"judge": {"api_key_env": "A_KEY"}}))


def test_records_must_be_of_the_system_that_is_trained(tmp_path: Path) -> None:
    def write(*systems: str) -> Inputs:
        return Inputs(train=(write_records(tmp_path, *systems),))

    sft = replace(OPTIONS, stage="sft")
    assert check(write(*["videozoomer"] * 6), options=sft).rows == 6
    with pytest.raises(SetupError, match=r"records\.jsonl: 2 of 6 records are episodes of eva, not of videozoomer"):
        check(write(*["videozoomer"] * 4, "eva", "eva"), options=sft)
