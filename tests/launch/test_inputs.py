import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from omegaconf import DictConfig, OmegaConf

from agentic_video.launch.inputs import (
    CheckedData,
    Inputs,
    absolutize_overrides,
    check_data,
    check_inputs,
    input_overrides,
    named_inputs,
    require_inputs,
    require_present,
)
from agentic_video.launch.options import LaunchOptions, Profile, Stage
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES
from tests.launch.checkpoints import write_checkpoint
from tests.rollout.chat_templates import template
from tests.toyworld.conftest import checkpoint, recipe, small_world, tokenizer

__all__ = ["checkpoint", "recipe", "small_world", "tokenizer"]

OPTIONS = LaunchOptions(RECIPES / "videozoomer")
SFT = replace(OPTIONS, stage="sft")


def config_of(
    system: str = "videozoomer.VideoZoomer", constants: Mapping[str, object] = {}, **more: object
) -> DictConfig:
    target = system if system.startswith("tests.") else f"agentic_video.systems.{system}"
    block = {"system": {"_target_": target, **constants}}
    return OmegaConf.merge({"data": {"train_batch_size": 6}, "agentic_video": block}, more)  # type: ignore[return-value]


CONFIG = config_of()


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
    require_present(inputs, options, profile, elsewhere=elsewhere)
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


def test_file_names_may_begin_with_the_home_folder_and_hold_commas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = write_rows(tmp_path, 6)
    for named in ("~/rows.jsonl", "~/rows.jsonl,~/rows.jsonl"):
        inputs = named_inputs("grpo", [], {"TRAIN_FILES": named})
        assert set(inputs.train) == {rows} and check(inputs).rows == 6 * len(inputs.train)
    assert named_inputs("sft", ["data.train_files=['~/a','~/b']"], {}).train == (f"{tmp_path}/a", f"{tmp_path}/b")
    file = str(tmp_path / "kitchen, day 1.jsonl")
    Path(file).touch()
    assert named_inputs("sft", [], {"TRAIN_FILES": file}).train == (file,)
    assert named_inputs("sft", [f"data.train_files='{file}'"], {}).train == (file,)
    many = [f"{tmp_path}/{number:03}.jsonl" for number in range(200)]
    assert named_inputs("sft", [], {"TRAIN_FILES": ",".join(many)}).train == tuple(many)


@pytest.mark.parametrize(
    ("inputs", "profile", "stage", "message"),
    [
        (Inputs(), "single", "grpo", "MODEL_PATH and TRAIN_FILES not set"),
        (Inputs("m"), "cluster", "grpo", "^TRAIN_FILES not set.* rows"),
        (Inputs(), "cluster", "sft", "trajectory records"),
        (Inputs(), "laptop", "grpo", ""),
        (Inputs(), "rehearsal", "grpo", ""),
        (Inputs("m", ("t",)), "cluster", "kto", ""),
    ],
)
def test_the_paper_s_profiles_need_a_model_and_data(
    inputs: Inputs, profile: Profile, stage: Stage, message: str
) -> None:
    if not message:
        require_inputs(inputs, profile, stage)
        return
    with pytest.raises(SetupError, match=message):
        require_inputs(inputs, profile, stage)


def test_processes_get_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m", "a", "rows.jsonl", "reward.py", "p.txt"):
        (tmp_path / name).touch()
    assert input_overrides(Inputs("owner/model"), "grpo") == ["actor_rollout_ref.model.path='owner/model'"]
    assert input_overrides(Inputs("m", ("a", "/b"), ("a",)), "sft") == [
        f"model.path='{tmp_path}/m'",
        f"data.train_files=['{tmp_path}/a','/b']",
        f"data.val_files=['{tmp_path}/a']",
    ]
    overrides = [
        "data.train_files=rows.jsonl",  # input_overrides has it
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


def test_a_checkpoint_to_resume_from_must_exist(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_2"
    config = config_of(trainer={"resume_mode": "resume_path", "resume_from_path": str(folder)})
    check(Inputs(), config=config, elsewhere=True)
    with pytest.raises(SetupError, match=r"^trainer\.resume_from_path"):
        check(Inputs(), config=config)
    folder.mkdir()
    check(Inputs(), config=config)


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
@pytest.mark.parametrize("model", ["/no/such", "./none", "none"])
def test_a_missing_model_is_refused(model: str, profile: Profile) -> None:
    with pytest.raises(SetupError, match=f"^MODEL_PATH={model}: no such folder"):
        check(Inputs(model), profile)


def test_a_name_on_the_hub_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SetupError, match=r"^MODEL_PATH=owner/model"):  # nothing is downloaded without a GPU
        check(Inputs("owner/model"), "laptop")
    config = tmp_path / "config.json"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda model, file: str(config))
    for kind, trainable in (("qwen2", False), ("qwen3_vl", True)):
        config.write_text(json.dumps({"model_type": kind}))
        if trainable:
            check(Inputs("owner/model"), "cluster")
        else:
            with pytest.raises(SetupError, match=r"^MODEL_PATH=owner/model: .*'qwen2'"):
                check(Inputs("owner/model"), "cluster")


def test_a_hub_without_an_answer_costs_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuse)
    with pytest.raises(SetupError, match=r"^MODEL_PATH=owner/none-such: .*refused"):
        check(Inputs("owner/none-such"), "cluster")


@pytest.mark.parametrize("stage", ["grpo", "sft"])
@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", None, "config.json"),
        ("config.json", "{", "config.json can't be read"),
        ("config.json", "[]", "config.json holds no JSON object"),
        ("config.json", '{"model_type": "qwen2"}', "'qwen2'"),
        ("model.safetensors", None, "no weights"),
        ("model.safetensors.index.json", '{"weight_map": {"b": "model-2.safetensors"}}', "model-2.safetensors"),
        ("tokenizer.json", None, "no tokenizer"),
        ("processor_config.json", None, "no image processor"),
        ("processor_config.json", "{", "processor_config.json can't be read"),
        ("processor_config.json", "{}", "no image processor"),
    ],
)
def test_a_checkpoint_must_be_complete(
    stage: Stage, file: str, content: str | None, message: str, tmp_path: Path
) -> None:
    folder = write_checkpoint(tmp_path / "mine")
    check(Inputs(str(folder)))
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(SetupError, match=message):
        check(Inputs(str(folder)), options=replace(OPTIONS, stage=stage))
    if file == "processor_config.json" and content is None and stage == "grpo":  # another folder's may be named
        check(Inputs(str(folder)), config=config_of(actor_rollout_ref={"model": {"tokenizer_path": "/elsewhere"}}))


def test_pictures_fit_the_checkpoint_s_processor_and_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_checkpoint(tmp_path / "mine")
    config = config_of(constants={"size_factor": 32})
    with pytest.raises(SetupError, match=r"size_factor=32: "):
        asked = replace(OPTIONS, overrides=("agentic_video.system.size_factor=32",))
        check(Inputs(str(folder)), options=asked, config=config)
    fitted = check(Inputs(str(folder)), config=config)
    assert fitted.overrides == ("++agentic_video.system.size_factor=28",)
    assert config.agentic_video.system.size_factor == 28
    capsys.readouterr()
    check(Inputs(str(folder)))
    assert "note: frames" not in capsys.readouterr().out
    check(Inputs(str(folder)), config=config_of("framethinker.FrameThinker"))
    out = capsys.readouterr().out
    assert "640x360" in out and "644x364" in out
    # vLLM's cache has room for a batch's tokens, or for the largest image that the processor makes
    small = {"size": {"shortest_edge": 784, "longest_edge": 1024 * 784}, "patch_size": 14}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": small, "video_processor": small}))
    rollout = {"name": "vllm", "n": 2, "max_num_batched_tokens": 8192, "max_model_len": 32_768}
    engine = {"engine_kwargs": {"vllm": {"limit_mm_per_prompt": {"image": 8, "video": 32}}}}
    config = config_of("timesearch.TimeSearch", actor_rollout_ref={"rollout": {**rollout, **engine}})
    key = "actor_rollout_ref.rollout.max_num_batched_tokens"
    with pytest.raises(SetupError, match=rf"^{key}=8192: .*; set {key}=10240"):
        check(Inputs(str(folder)), config=config)
    OmegaConf.update(config, key, 10_240)
    check(Inputs(str(folder)), config=config)


def test_the_chat_template_takes_role_and_variables(checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    searching = config_of("timesearch.TimeSearch")
    (folder / "chat_template.jinja").write_text(template(tool=False))
    check(Inputs(str(folder)))
    with pytest.raises(SetupError, match=r"agentic_video\.system\.observation_role"):
        check(Inputs(str(folder)), config=searching)
    (folder / "chat_template.jinja").write_text(template(numbered=True))
    check(Inputs(str(folder)), config=searching)
    for name, value in (("add_vision_id", True), ("reasoning_effort", "low")):
        with pytest.raises(SetupError, match=name):
            check(Inputs(str(folder)), config=config_of(data={"apply_chat_template_kwargs": {name: value}}))
    (folder / "tokenizer.json").write_text("{}")  # loading it for the run reports that
    check(Inputs(str(folder)), config=searching)


def test_a_script_s_files_are_called_by_their_keys(tmp_path: Path) -> None:
    files = {"train_files": [str(tmp_path / "none.parquet")], "val_files": None}
    config = config_of(data=files, actor_rollout_ref={"model": {"path": "org/model"}})
    with pytest.raises(SetupError, match=r"^data\.train_files: \S*none\.parquet"):
        check_data(config)


def test_a_large_model_needs_a_gpu_or_the_user_s_word(tmp_path: Path) -> None:
    model = str(write_checkpoint(tmp_path / "mine", 16_000_000_000))
    with pytest.raises(SetupError, match=r"16 GB of weights.* --profile laptop$"):
        check(Inputs(model))
    check(Inputs(model), options=replace(OPTIONS, profile="laptop"))
    check(Inputs(model), "cluster")


def test_files_missing_here_may_be_elsewhere() -> None:
    assert check(Inputs("/no/such", ("/none.parquet",), ("/none.parquet",)), "cluster", elsewhere=True) == CheckedData()
    with pytest.raises(SetupError, match=r"^TRAIN_FILES: /none\.parquet: no such file"):
        check(Inputs("", ("/none.parquet",)), "cluster")


def test_a_validation_on_all_training_rows_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 600)
    trainer = {"test_freq": 50, "val_before_train": False}
    inputs, config = Inputs(train=(rows,), val=(rows,)), config_of(trainer=trainer)
    assert check(inputs, "cluster", config=config).rows == 600
    assert "VAL_FILES" in capsys.readouterr().out
    few = config_of(trainer=trainer, data={"train_batch_size": 6, "val_max_samples": 300})
    never = config_of(trainer=trainer | {"test_freq": -1})
    for quiet in (few, never):
        assert check(inputs, "cluster", config=quiet).rows == 600
    (other := tmp_path / "other").mkdir()
    check(replace(inputs, val=(write_rows(other, 3),)), "cluster", config=config)
    assert capsys.readouterr().out == ""


def test_a_batch_fits_the_rows_in_the_laptop_profile_only(tmp_path: Path) -> None:
    video = (str(tmp_path / "v.mp4"),)
    assert check(Inputs(train=(write_rows(tmp_path, 6),))) == CheckedData(rows=6, videos=video)
    rows = write_rows(tmp_path, 4)
    fitted = ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4")
    assert check(Inputs(train=(rows,), val=(rows,))) == CheckedData(fitted, 4, video)
    asked = replace(OPTIONS, overrides=("data.train_batch_size=6",))
    for options, profile in ((asked, "laptop"), (OPTIONS, "cluster")):
        with pytest.raises(SetupError) as caught:
            check(Inputs(train=(rows,)), profile, options)  # type: ignore[arg-type]
        assert caught.value.key == "data.train_batch_size"
    rows = write_rows(tmp_path, 12)
    few = config_of(data={"train_batch_size": 6, "train_max_samples": 2})
    with pytest.raises(SetupError, match=r"^data\.train_max_samples=2"):
        check(Inputs(train=(rows,)), config=few)
    nine = config_of(data={"train_batch_size": 6, "train_max_samples": 9})
    assert check(Inputs(train=(rows,)), config=nine).rows == 9


@pytest.mark.parametrize("stage", ["grpo", "sft"])
def test_a_name_that_is_no_file_has_its_remedy(stage: Stage, tmp_path: Path) -> None:
    rows = write_rows(tmp_path, 6)
    for named, remedy in (
        (str(tmp_path), "a folder"),
        (f"{rows} {rows}", "separate files by commas"),
        (f"{rows}:{rows}l", "separate files by commas"),
        (f"{tmp_path}/*.jsonl", "pattern"),
        (f"{tmp_path}/none.jsonl", "no such file"),
        ("hf://datasets/a/b/train.parquet", "convert conversations"),
    ):
        inputs = named_inputs(stage, [], {"TRAIN_FILES": rows if stage == "grpo" else named, "VAL_FILES": named})
        with pytest.raises(SetupError, match=remedy) as caught:
            check(inputs, options=replace(OPTIONS, stage=stage))
        assert str(caught.value).startswith(f"{'VAL' if stage == 'grpo' else 'TRAIN'}_FILES: {named}: ")


def test_rows_of_one_id_are_reported_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 6)
    text = Path(rows).read_text()
    Path(rows).write_text(text + text.splitlines()[0] + "\n")  # the same row again is no other question
    assert check(Inputs(train=(rows,))).rows == 7 and capsys.readouterr().out == ""
    Path(rows).write_text(text + text.replace('"?"', '"What?"'))
    assert check(Inputs(train=(rows,))).rows == 12
    assert capsys.readouterr().out.startswith(f"warning: TRAIN_FILES: {rows} line 7: id '0'")


def test_files_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    rows = write_rows(tmp_path, 4)
    pq.write_table(pa.Table.from_pylist([{"id": "1"}]), tmp_path / "rows.parquet")
    for file in (rows, str(tmp_path / "rows.parquet")):
        with pytest.raises(SetupError, match=r"^TRAIN_FILES: \S+rows\.\w+: these are rows"):
            check(Inputs(train=(file,)), options=SFT)
    records = write_records(tmp_path, "videozoomer")
    with pytest.raises(SetupError, match=r"^VAL_FILES: \S+records\.jsonl: these are records"):
        check(Inputs(train=(rows,), val=(rows, records)))
    (empty := tmp_path / "empty.jsonl").touch()
    for options in (OPTIONS, SFT):
        with pytest.raises(SetupError, match="the file is empty"):
            check(Inputs(train=(str(empty),)), options=options)


def test_unusable_records_are_reported_and_excluded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = write_records(tmp_path, *["videozoomer"] * 7)
    lines = Path(records).read_text().splitlines()
    row = Path(write_rows(tmp_path, 1)).read_text().strip()
    Path(records).write_text("\n".join([lines[0].replace("v.mp4", "gone.mp4"), *lines[1:], row]))
    assert check(Inputs(train=(records,)), options=SFT).rows == 6
    first, second, count = capsys.readouterr().out.splitlines()
    assert "line 1" in first and "gone.mp4" in first and "line 8" in second and "2 of 8" in count
    others = write_records(tmp_path, *["videozoomer"] * 4, "eva", "eva")
    with pytest.raises(SetupError, match=r"records\.jsonl: 2 of 6 records are episodes of eva"):
        check(Inputs(train=(others,)), options=SFT)


OPEN = {"options": [], "answer": "a red ball"}
SERVED = {"base_url": "http://here/v1", "model": "one"}


@pytest.mark.parametrize(
    ("system", "constants", "fields", "key"),
    [
        ("videozoomer.VideoZoomer", {}, {}, None),
        ("videozoomer.VideoZoomer", {}, OPEN, "agentic_video.judge.base_url"),
        ("eva.Eva", {}, {}, "agentic_video.verifier.base_url"),
        ("videobrain.VideoBrain", {}, {"extra_info": {"class": "direct"}}, "agentic_video.judge.base_url"),
        ("videobrain.VideoBrain", {}, {}, "extra_info.class"),
        ("tests.launch.test_inputs.Renamed", {}, OPEN, "agentic_video.judge.base_url"),
    ],
)
def test_a_reward_needs_its_graders(
    system: str, constants: dict[str, object], fields: dict[str, object], key: str | None, tmp_path: Path
) -> None:
    rows = Inputs(train=(write_rows(tmp_path, 6, **fields),))
    if key is None:
        assert check(rows, config=config_of(system, constants)).rows == 6
        return
    with pytest.raises(SetupError, match=rf"rows\.jsonl: .*{key}"):
        check(rows, config=config_of(system, constants))


def test_a_grader_may_be_a_server_of_the_user_of_verl_or_of_the_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, val = write_rows(tmp_path, 6), tmp_path / "val.jsonl"
    val.write_text(Path(train).read_text() + Path(write_rows(tmp_path, 2, **OPEN)).read_text())
    write_rows(tmp_path, 6)
    rows = Inputs(train=(train,), val=(str(val),))
    for more in (
        {},
        {"judge": {"base_url": "http://here/v1"}},
        {"reward": {"path": "a.py", "name": "f", "mode": "add"}},
    ):
        with pytest.raises(SetupError, match=r"val\.jsonl: 2 of 8 rows"):
            check(rows, config=config_of(agentic_video=more))
    check(rows, config=config_of(agentic_video={"judge": SERVED}))
    check(rows, config=config_of(reward={"reward_model": {"enable": True}}))
    check(rows, config=config_of(agentic_video={"reward": {"path": "a.py", "name": "f"}}))
    eva = config_of("eva.Eva", agentic_video={"toyworld": {"verifier": True}})
    check(Inputs(train=(train,)), config=eva)
    with pytest.raises(SetupError, match="verifier"):
        check(Inputs(train=(train,)), "cluster", config=eva)
    monkeypatch.setenv("A_KEY", "sek\nret")
    with pytest.raises(SetupError, match=r"^A_KEY: "):
        check(Inputs(train=(train,)), config=config_of(agentic_video={"judge": {**SERVED, "api_key_env": "A_KEY"}}))
