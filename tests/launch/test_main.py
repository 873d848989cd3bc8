import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from agentic_video.launch import job as working
from agentic_video.launch import main as launching
from agentic_video.launch.cluster import Cluster, ClusterRequest, Node
from agentic_video.launch.inputs import MODEL_KEYS
from agentic_video.launch.laptop_fork.server import SWITCH
from agentic_video.launch.main import launch
from agentic_video.launch.options import LaunchOptions
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES
from tests.launch.checkpoints import write_checkpoint

RECIPE = RECIPES / "framethinker"


@pytest.fixture(autouse=True)
def no_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would import for a quarter of a minute."""
    monkeypatch.setenv(SWITCH, "0")


@dataclass(frozen=True)
class Asked:
    """What was asked of a build."""

    stage: str
    data: bool
    model: str
    dry_run: bool


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Nothing is built; what was asked for is noted."""
    asked = []

    def build(
        recipe: Path, overrides: Sequence[str], stage: str, *, data: bool, model: str, dry_run: bool, config: object
    ) -> dict[str, str]:
        asked.append(Asked(stage, data, model, dry_run))
        paths = {"train": "t.parquet", "heldout": "h.parquet"} if data else {}
        return {**paths, "model": "cold"} if model == "cold-start" else paths

    monkeypatch.setattr(launching, "build_toyworld", build)
    for name in ("MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return asked


@dataclass
class FakeVerl:
    """Stands for verl's process: notes commands and environments, does something, and ends with a status."""

    status: int = 1
    started: list[tuple[list[str], dict[str, str]]] = field(default_factory=list)
    does: Callable[[Mapping[str, str], Path], object] = lambda environment, log: None

    def run(self, command: Sequence[str], environment: Mapping[str, str], log: Path, total: int) -> tuple[int, int]:
        self.started.append((list(command), dict(environment)))
        self.does(environment, log)
        return self.status, 5


@pytest.fixture
def verl(tmp_path: Path, builds: list[Asked], monkeypatch: pytest.MonkeyPatch) -> FakeVerl:
    fake = FakeVerl()
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    monkeypatch.setattr(working, "run_verl", fake.run)
    monkeypatch.setattr(launching, "write_summary", lambda folder: f"summary of {folder.name}")
    monkeypatch.setattr(launching, "unanswered", lambda address: "")
    return fake


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "mine")


def command_of(options: LaunchOptions, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The command that a dry run prints."""
    assert launch(replace(options, dry_run=True)) == 0
    return shlex.split(capsys.readouterr().out.splitlines()[-1])


def test_a_dry_run_builds_nothing(builds: list[Asked], capsys: pytest.CaptureFixture[str]) -> None:
    command = command_of(LaunchOptions(RECIPE), capsys)
    assert builds == [Asked("grpo", data=True, model="cold-start", dry_run=True)]
    assert command[-3:] == [
        "data.train_files=['t.parquet']",
        "data.val_files=['h.parquet']",
        f"{MODEL_KEYS['grpo']}='cold'",
    ]


@pytest.mark.parametrize("below", ["", "runs"])
def test_a_file_in_place_of_the_outputs_is_named_by_a_dry_run_too(
    builds: list[Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    file = tmp_path / "afile"
    file.touch()
    monkeypatch.setenv("OUTPUT_DIR", str(file / below))
    with pytest.raises(SetupError, match=rf"^{file}: a file, .*; set OUTPUT_DIR to another$"):
        launch(LaunchOptions(RECIPE, dry_run=True))
    assert builds == []


def test_a_named_checkpoint_needs_no_cold_start(
    builds: list[Asked], checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    handed = f"actor_rollout_ref.model.path='{checkpoint}'"
    monkeypatch.chdir(checkpoint.parent)  # a job's processes may have another folder
    named = (f"actor_rollout_ref.model.path={checkpoint.name}",)
    command = command_of(LaunchOptions(RECIPE, overrides=named), capsys)
    assert [text for text in command if "model.path" in text] == [handed]
    monkeypatch.setenv("MODEL_PATH", str(checkpoint))
    assert handed in command_of(LaunchOptions(RECIPE), capsys)
    assert [(build.data, build.model) for build in builds] == [(True, "none")] * 2


def test_data_of_custom_is_trained_on(
    builds: list[Asked],
    tmp_path: Path,
    checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "v.mp4").write_bytes(b"video")
    row = {"id": "1", "data_source": "mine", "video": "v.mp4", "question": "?", "options": ["x", "y"], "answer": "A"}
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(f"{json.dumps({**row, 'id': str(number)})}\n" for number in range(4)))
    monkeypatch.setenv("TRAIN_FILES", str(rows))
    command = command_of(LaunchOptions(RECIPE), capsys)
    assert builds == [Asked("grpo", data=False, model="cold-start", dry_run=True)]
    # validated on itself, in batches that four rows fill
    assert f"data.train_files=['{rows}']" in command and f"data.val_files=['{rows}']" in command
    assert command[-2:] == ["data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4"]
    monkeypatch.setenv("MODEL_PATH", str(checkpoint))
    with pytest.raises(SetupError, match=r"^TRAIN_FILES: \S+rows\.jsonl: these are rows .*, but sft reads records"):
        command_of(LaunchOptions(RECIPE, "sft"), capsys)


@pytest.mark.parametrize("status", [0, 3, -9])
def test_a_run_from_its_folder_to_its_summary(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verl: FakeVerl, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def serve(model: str | None, host: str) -> Iterator[list[str]]:
        yield ["served=1"]

    def has_a_temporary_folder(environment: Mapping[str, str], log: Path) -> None:
        assert Path(environment["TMPDIR"]).is_dir()

    verl.status, verl.does = status, has_a_temporary_folder
    left = 5 << 20 if status == -9 else 1 << 30
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=left))
    monkeypatch.setattr(working, "verifier_server", serve)
    assert launch(LaunchOptions(RECIPE, profile="laptop", overrides=("trainer.save_freq=7",))) == (
        137 if status == -9 else status
    )

    folder = tmp_path / "framethinker-laptop" / "run-001"
    ((command, environment),) = verl.started
    written = [text for text in command if str(folder) in text]
    assert written == [
        f"hydra.run.dir='{folder}/hydra'",
        f"trainer.default_local_dir='{folder}/checkpoints'",
        f"agentic_video.episodes_dir='{folder}/episodes'",
    ]
    assert command[-1] == "trainer.save_freq=7"  # the user's word is the last
    assert "served=1" in command and f"+ray_kwargs.ray_init._temp_dir='{environment['TMPDIR']}/ray'" in command
    assert shlex.split((folder / "command.sh").read_text()) == command
    assert environment["VERL_FILE_LOGGER_PATH"] == f"{folder}/metrics-001.jsonl"
    assert environment["HF_HUB_OFFLINE"] == "1" and not Path(environment["TMPDIR"]).exists()
    record = json.loads((folder / "run.json").read_text())
    said = capsys.readouterr()
    assert record["finished"] == (status == 0)
    if status:
        shown = "-9 (SIGKILL)" if status == -9 else "3"
        assert said.err.startswith(f"verl stopped with status {shown}; the whole log is {folder}/log.txt\n")
        assert (f"\n{folder}: its disk is full (5 MiB left); make room first\n" in said.err) == (status == -9)
    else:
        assert said.out.endswith("summary of run-001\n")
        assert (record["recipe"], record["profile"], record["peak_bytes"]) == ("framethinker", "laptop", 5)


@pytest.mark.parametrize("said", ["code: -98, name: EADDRINUSE, message: address already in use", "out of memory"])
def test_a_port_that_was_taken_costs_a_second_start(said: str, verl: FakeVerl) -> None:
    def write(environment: Mapping[str, str], log: Path) -> None:
        with log.open("a") as file:
            file.write(f"{said}\n")

    verl.does = write
    for times in (1, 2):  # the same run's log, which says it already
        assert launch(LaunchOptions(RECIPE, profile="laptop")) == 1
        again = "EADDRINUSE" in said
        assert len(verl.started) == times * (2 if again else 1)
        assert not again or verl.started[-1][0] == verl.started[-2][0]


def test_a_finished_run_stays_one_whatever_its_summary_meets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verl: FakeVerl, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(folder: Path) -> str:
        raise KeyError("reward")

    verl.status = 0
    monkeypatch.setattr(launching, "write_summary", fail)
    assert launch(LaunchOptions(RECIPE, profile="laptop")) == 0
    folder = tmp_path / "framethinker-laptop" / "run-001"
    assert "KeyError: 'reward'" in capsys.readouterr().err
    assert json.loads((folder / "run.json").read_text())["finished"]


def test_a_folder_of_checkpoints_belongs_to_the_run_that_wrote_them(tmp_path: Path, verl: FakeVerl) -> None:
    kept = tmp_path / "kept"
    verl.does = lambda environment, log: (kept / "latest_checkpointed_iteration.txt").write_text("10")

    def launched(*overrides: str) -> int:
        words = (f"trainer.default_local_dir={kept}", *overrides)
        return launch(LaunchOptions(RECIPE, profile="laptop", overrides=words))

    assert launched("trainer.save_freq=7") == 1
    with pytest.raises(SetupError, match=r"trainer\.save_freq=7; this one's: trainer\.save_freq=8"):
        launched("trainer.save_freq=8")
    verl.status = 0
    assert launched("trainer.save_freq=7") == 0  # resumes
    with pytest.raises(SetupError) as caught:  # it has finished
        launched("trainer.save_freq=7")
    assert caught.value.key == "trainer.default_local_dir" and len(verl.started) == 2


@pytest.mark.parametrize("address", ["", "auto"])
def test_a_recipe_s_own_modules_are_found_by_all_its_processes(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verl: FakeVerl
) -> None:
    recipe = tmp_path / "recipes" / "mine"
    shutil.copytree(RECIPE, recipe)
    (recipe / "thinker_of_mine.py").write_text(
        "from agentic_video.systems.framethinker.system import FrameThinker\n\n\nclass Mine(FrameThinker):\n    pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for name, value in {"RAY_ADDRESS": address, "MODEL_PATH": "m", "TRAIN_FILES": "t"}.items():
        if address:
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(working, "check_cluster", lambda *asked: Cluster((Node("10.0.0.1", cpus=64, gpus=8),)))
    own = ("agentic_video.system._target_=thinker_of_mine.Mine",)
    # the config is read here, before anything starts: the class was found
    assert launch(LaunchOptions(recipe, profile="cluster" if address else "laptop", overrides=own)) == 1
    ((command, environment),) = verl.started
    assert environment["PYTHONPATH"].split(os.pathsep)[-1] == str(recipe)
    handed = [word for word in command if "env_vars={" in word]
    assert len(handed) == (1 if address else 0) and all(f"{recipe}'" in word for word in handed)


def test_a_recipe_s_module_that_hides_another_is_refused(tmp_path: Path) -> None:
    shutil.copytree(RECIPE, tmp_path / "mine")
    (tmp_path / "mine" / "bisect.py").write_text("")
    with pytest.raises(SetupError, match=f"^{tmp_path / 'mine' / 'bisect.py'}: a module of Python's own library"):
        launch(LaunchOptions(tmp_path / "mine", profile="laptop", dry_run=True))


def test_a_cluster_s_processes_get_what_the_launcher_has(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, verl: FakeVerl
) -> None:
    asked: list[ClusterRequest] = []

    def read_keys(environment: Mapping[str, str], log: Path) -> None:
        (keys,) = tmp_path.glob("*/run-001/secrets.env")
        assert keys.stat().st_mode & 0o777 == 0o600 and keys.read_text() == 'WANDB_API_KEY="hidden"\n'

    def look(address: str, wanted: ClusterRequest, environment: Mapping[str, str]) -> Cluster:
        assert address == "10.0.0.1:6379" and Path(wanted.shared).read_text() == wanted.content
        asked.append(wanted)
        head = Node("10.0.0.9", cpus=2, gpus=0)  # which has no GPU, and says nothing of what the others can do
        return Cluster((head, Node("10.0.0.1", cpus=64, gpus=8), Node("10.0.0.2", cpus=32, gpus=8)))

    variables = {
        "RAY_ADDRESS": "10.0.0.1:6379",
        "MODEL_PATH": str(checkpoint),
        "TRAIN_FILES": "/on/the/nodes.parquet",
        "NNODES": "2",
        "NCCL_SOCKET_IFNAME": "eth0",
        "WANDB_API_KEY": "hidden",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for name in ("TMPDIR", "GPUS_PER_NODE", "VAL_FILES"):
        monkeypatch.delenv(name, raising=False)
    verl.does = read_keys
    monkeypatch.setattr(working, "check_cluster", look)
    monkeypatch.setenv("http_proxy", "http://proxy.example.com:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    assert launch(LaunchOptions(RECIPE, profile="cluster", overrides=("reward.num_workers=3",))) == 1
    ((command, environment),) = verl.started
    (handed,) = (word for word in command if "env_vars={" in word)
    assert "HYDRA_FULL_ERROR:'1'" in handed and "NCCL_SOCKET_IFNAME:'eth0'" in handed
    # the cluster's own addresses are asked without the proxy
    assert "http_proxy:'http://proxy.example.com:3128'" in handed
    excepted = handed.partition("no_proxy:'")[2].partition("'")[0].split(",")
    assert {"localhost", "127.0.0.1", "10.0.0.9", "10.0.0.1", "10.0.0.2"} <= {*excepted}
    # a node's own environment has none of these, and nothing of a key is shown
    assert f"actor_rollout_ref.model.path='{checkpoint}'" in command and "trainer.nnodes=2" in command
    assert "data.val_files=['/on/the/nodes.parquet']" in command and "trainer.n_gpus_per_node=8" in command
    assert "hidden" not in " ".join(command) and not list(tmp_path.glob("*/run-001/secrets.env"))
    # two nodes with GPUs, the smaller one of 32 CPUs; the user's count is kept
    assert "actor_rollout_ref.rollout.agent.num_workers=32" in command
    assert [word for word in command if word.startswith("reward.num_workers")] == ["reward.num_workers=3"]
    assert (asked[0].nodes, asked[0].gpus, asked[0].files) == (2, 8, (str(checkpoint), "/on/the/nodes.parquet"))
    assert "TMPDIR" not in environment  # the nodes have temporary folders of their own


def test_a_rehearsal_has_ray_nodes_of_its_own(monkeypatch: pytest.MonkeyPatch, verl: FakeVerl) -> None:
    @contextmanager
    def nodes(count: int, folder: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
        assert count == 4
        yield {"RAY_ADDRESS": "127.0.0.1:1"}

    monkeypatch.setenv("NNODES", "4")
    monkeypatch.setattr(working, "ray_nodes", nodes)
    monkeypatch.setattr(working, "check_cluster", lambda *asked: Cluster((Node("127.0.0.1", cpus=16, gpus=1),)))
    assert launch(LaunchOptions(RECIPE, profile="rehearsal")) == 1
    ((command, environment),) = verl.started
    assert environment["RAY_ADDRESS"] == "127.0.0.1:1" and environment["VERL_PLATFORM"] == "cpu"
    assert command[command.index("--config-name") + 1 :][:2] == ["cluster", "+profile=rehearsal"]
    assert "trainer.nnodes=4" in command and "data.train_files=['t.parquet']" in command
    assert not [word for word in command if "num_workers" in word]  # the yaml's


@pytest.mark.parametrize("profile", ["laptop", "cluster"])
def test_a_ray_cluster_that_has_gone_costs_a_line_before_anything_is_built(
    profile: Literal["laptop", "cluster"], tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*arguments: object, **options: object) -> None:
        raise AssertionError("something was built")

    monkeypatch.setattr("agentic_video.launch.main.build_toyworld", build)
    for name, value in {"RAY_ADDRESS": "127.0.0.1:9", "OUTPUT_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    if profile == "cluster":
        monkeypatch.setenv("MODEL_PATH", str(checkpoint))
        monkeypatch.setenv("TRAIN_FILES", "/on/the/nodes.parquet")
    with pytest.raises(SetupError, match=r"127\.0\.0\.1:9.*unset RAY_ADDRESS"):
        launch(LaunchOptions(RECIPE, profile=profile))
