import json
from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from agentic_video.launch import inputs as looking
from agentic_video.launch.inputs import Checked, Inputs, check_inputs, input_overrides, named_inputs
from agentic_video.launch.options import LaunchOptions, Profile
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES

OPTIONS = LaunchOptions(RECIPES / "videozoomer")
CONFIG = OmegaConf.create({"data": {"train_batch_size": 6}})
assert isinstance(CONFIG, DictConfig)


def write_rows(folder: Path, count: int, video: str = "v.mp4") -> str:
    (folder / "v.mp4").write_bytes(b"video")
    row = {"data_source": "mine", "video": video, "question": "?", "options": ["x", "y"], "answer": "A"}
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps({'id': str(number), **row})}\n" for number in range(count)))
    return str(file)


def make_checkpoint(folder: Path, weights: int = 10) -> str:
    (folder / "mine").mkdir()
    (folder / "mine" / "config.json").write_text("{}")
    with (folder / "mine" / "model.safetensors").open("wb") as file:
        file.truncate(weights)  # a sparse file: it takes no room
    return str(folder / "mine")


def check(inputs: Inputs, profile: Profile = "laptop", options: LaunchOptions = OPTIONS, **more: bool) -> Checked:
    return check_inputs(inputs, options, profile, CONFIG, **more)  # type: ignore[arg-type]


def test_overrides_come_before_variables() -> None:
    environment = {"MODEL_PATH": "m", "TRAIN_FILES": "t", "VAL_FILES": "v"}
    assert named_inputs("grpo", [], environment) == Inputs("m", ("t",), ("v",))
    overrides = ["actor_rollout_ref.model.path=o", "data.train_files=[a,b]", "data.val_files=c"]
    assert named_inputs("grpo", overrides, environment) == Inputs("o", ("a", "b"), ("c",))
    assert named_inputs("sft", ["model.path=o"], {}) == Inputs("o")
    assert named_inputs("grpo", [], {"TRAIN_FILES": "t"}) == Inputs("", ("t",), ("t",))
    assert named_inputs("sft", [], {"TRAIN_FILES": "a,b", "VAL_FILES": "c"}) == Inputs("", ("a", "b"), ("c",))
    assert named_inputs("grpo", [], {"VAL_FILES": "v"}) == Inputs("", (), ("v",))


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


def test_a_hub_that_can_t_be_reached_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr(HfApi, "model_info", refuse)
    with pytest.raises(SetupError, match=r"the hub can't be reached \(ConnectionError\)"):
        check(Inputs("owner/none-such"), "cluster")


def test_a_folder_must_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no checkpoint in Hugging Face's format \(config\.json is missing\)"):
        check(Inputs(str(tmp_path)))
    check(Inputs(make_checkpoint(tmp_path)))


def test_a_large_model_needs_a_gpu_or_the_user_s_word(tmp_path: Path) -> None:
    model = make_checkpoint(tmp_path, 16_000_000_000)
    with pytest.raises(SetupError, match=r"16 GB of weights, but this machine has no GPU .* --profile laptop$"):
        check(Inputs(model))
    check(Inputs(model), options=replace(OPTIONS, profile="laptop"))
    check(Inputs(model), "cluster")


def test_what_is_not_here_may_be_elsewhere() -> None:
    assert check(Inputs("/no/such", ("/none.parquet",), ("/none.parquet",)), "cluster", elsewhere=True) == Checked()
    with pytest.raises(SetupError, match=r"^/none\.parquet: no such file"):
        check(Inputs("", ("/none.parquet",)), "cluster")


def test_rows_that_fill_a_batch_change_nothing(tmp_path: Path) -> None:
    assert check(Inputs(train=(write_rows(tmp_path, 6),))) == Checked(rows=6, videos=(str(tmp_path / "v.mp4"),))


def test_the_laptop_s_batch_fits_few_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 4)
    fitted = ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4")
    assert check(Inputs(train=(rows,), val=(rows,))) == Checked(fitted, 4, (str(tmp_path / "v.mp4"),))
    assert capsys.readouterr().out == f"{rows}: 4 usable rows, so {' '.join(fitted)}\n"


def test_a_batch_that_was_asked_for_is_not_changed(tmp_path: Path) -> None:
    rows = Inputs(train=(write_rows(tmp_path, 4),))
    asked = replace(OPTIONS, overrides=("data.train_batch_size=6",))
    said = r"4 usable rows don't fill a batch of data\.train_batch_size=6; set data\.train_batch_size=4$"
    with pytest.raises(SetupError, match=said):
        check(rows, options=asked)
    with pytest.raises(SetupError, match=said):
        check(rows, "cluster")


def test_rows_without_a_video_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write_rows(tmp_path, 6)
    with Path(rows).open("a") as file:
        file.write(Path(rows).read_text().splitlines()[0].replace("v.mp4", "gone.mp4").replace('"0"', '"7"') + "\n")
    assert check(Inputs(train=(rows,))) == Checked(rows=6, videos=(str(tmp_path / "v.mp4"),))
    said = capsys.readouterr().out.splitlines()
    assert "gone.mp4: no such file" in said[0] and said[1] == "1 of 7 rows left out"


def test_files_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"rows\.jsonl: no usable record; the first: .*line 1"):
        check(Inputs(train=(write_rows(tmp_path, 4),)), options=replace(OPTIONS, stage="sft"))
