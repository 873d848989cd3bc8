import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import omegaconf
import pytest

from agentic_video.launch import nodes as looking
from agentic_video.launch.nodes import Wanted, check_cluster, look, missing
from agentic_video.launch.ray_nodes import ray_nodes
from agentic_video.utils.errors import SetupError


@pytest.mark.parametrize(
    ("gpus", "free", "lacks"),
    [
        ([8.0, 8.0], 16.0, ""),
        ([8.0, 8.0, 0.0], 16.0, ""),  # a head without GPUs
        ([8.0], 8.0, r"1 node\(s\) with 8 GPU\(s\); the run asks for 2 x 8"),
        ([8.0, 4.0], 12.0, r"2 node\(s\) with 8, 4 GPU\(s\); the run asks for 2 x 8"),
        ([8.0, 8.0], 9.0, r"only 9 of its 16 GPUs are free"),
    ],
)
def test_what_a_cluster_lacks(gpus: list[float], free: float, lacks: str) -> None:
    said = missing(Wanted(2, 8), gpus, free)
    assert bool(said) == bool(lacks) and re.search(lacks, said)


@pytest.mark.parametrize(
    ("gpus", "remedy"),
    [([0.0, 0.0], "start it with --num-gpus=1 on nodes without GPUs"), ([1.0], "set NNODES and GPUS_PER_NODE")],
)
def test_a_rehearsal_s_nodes_without_gpus_are_told_to_count_one(gpus: list[float], remedy: str) -> None:
    assert remedy in missing(Wanted(2, 1, variables={"VERL_PLATFORM": "cpu"}), gpus, sum(gpus))


@pytest.mark.parametrize(
    ("gpus", "free", "lacks"),
    [
        ([8.0, 4.0], 12.0, ""),
        ([8.0, 4.0], 11.0, r"only 11 of its 12 GPUs are free"),
        (
            [8.0],
            8.0,
            r"it has 8 GPU\(s\) in all; the run asks for 12, 1 x 8 \(trainer\.nnodes x trainer\.n_gpus_per_node\) "
            r"and 4 \(actor_rollout_ref\.rollout\.nnodes x actor_rollout_ref\.rollout\.n_gpus_per_node\): ",
        ),
    ],
)
def test_gpus_beside_the_trainer_s_count(gpus: list[float], free: float, lacks: str) -> None:
    said = missing(Wanted(1, 8, beside={"actor_rollout_ref.rollout": 4}), gpus, free)
    assert bool(said) == bool(lacks) and re.search(lacks, said)


def seen(folder: Path, *files: Path, versions: dict[str, str] | None = None, content: str = "x") -> list[str]:
    shared = folder / "token"
    shared.write_text("x")
    wanted = Wanted(1, 1, tuple(map(str, files)), str(shared), content)
    return look(asdict(wanted), versions or {}, 0.5)


def test_a_node_that_sees_all(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("")
    assert seen(tmp_path, tmp_path / "rows", tmp_path) == []


def test_a_node_that_lacks_a_file_says_which(tmp_path: Path) -> None:
    assert seen(tmp_path, tmp_path / "rows") == [
        f"{tmp_path}/rows: no such file or directory; it must be at the same path on every node"
    ]
    (problem,) = seen(tmp_path, content="of another machine")
    assert problem.startswith(f"{tmp_path} isn't the launcher's folder; OUTPUT_DIR must be on a file system that all")


def test_another_version_is_said(tmp_path: Path) -> None:
    (problem,) = seen(tmp_path, versions={"hydra-core": "0.1", "omegaconf": omegaconf.__version__})
    assert f"{sys.executable} has hydra-core " in problem and "the launcher's has 0.1" in problem
    (problem,) = seen(tmp_path, versions={"no-such-thing": "1"})
    assert "has no no-such-thing, the launcher's has 1" in problem


def test_a_file_that_never_answers_is_given_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"  # opening it waits for a writer, as a dead disk waits for its server
    os.mkfifo(pipe)
    (problem,) = seen(tmp_path, pipe, tmp_path / "none")
    assert problem.startswith(f"{pipe}: no answer within 0.5 s; is the file system of {tmp_path} mounted")
    writer = threading.Thread(target=lambda: pipe.open("wb").close())
    writer.start()
    writer.join()


def test_an_address_where_nothing_listens_is_said_at_once() -> None:
    with pytest.raises(SetupError, match=r"^no Ray cluster answers at 127\.0\.0\.1:1: "):
        check_cluster("127.0.0.1:1", Wanted(1, 1), {})


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_two_nodes_on_this_machine(tmp_path: Path, nodes_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows"
    rows.write_text("")
    environment = {**os.environ, "WANTED": "not inherited"}
    with ray_nodes(2, nodes_folder, environment) as joining:
        address, environment = joining["RAY_ADDRESS"], {**environment, **joining}
        cluster = check_cluster(address, Wanted(2, 1, (str(rows),)), environment)
        assert [(node.gpus, node.problems) for node in cluster.nodes] == [(1.0, ()), (1.0, ())]
        with pytest.raises(
            SetupError, match=r"^node [\d.]+: /no/such: no such file or directory; .* \(and 1 more: node "
        ):
            check_cluster(address, Wanted(2, 1, ("/no/such",)), environment)
        # too few nodes are waited for
        program = "import sys; from agentic_video.launch import nodes; nodes.JOIN_SECONDS = 0.1; nodes.main()"
        said = subprocess.run(
            [sys.executable, "-c", program, address],
            input=json.dumps(asdict(Wanted(3, 8))),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        problem = json.loads(said.partition(looking.RESULT)[2])["problem"]
        assert "it has 2 node(s) with 1, 1 GPU(s); the run asks for 3 x 8" in problem
        with pytest.raises(SetupError, match=r"^no Ray cluster can be joined at .*RAY_AUTH_MODE=token"):
            check_cluster(address, Wanted(1, 1), {**environment, "RAY_AUTH_MODE": "disabled"})
    with pytest.raises(SetupError, match=rf"^no Ray cluster answers at {address}: "):
        check_cluster(address, Wanted(1, 1), environment)
