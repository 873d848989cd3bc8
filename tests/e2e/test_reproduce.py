"""Each paper's whole chain, rehearsed on the synthetic world as documented, stopped once and gone on with."""

import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest

from agentic_video.launch.reproduce.chain import read_chain
from agentic_video.launch.reproduce.state import State
from tests.config.configs import RECIPES, SYSTEMS
from tests.docs.tables import rows_of
from tests.e2e.jobs import REPOSITORY, start

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_rehearsal(system: str, tmp_path: Path) -> None:
    stages = [stage for stage in read_chain(RECIPES / system, "laptop").stages if not stage.left_out]
    out = tmp_path / f"{system}-reproduce-laptop"
    command = ["bash", str(REPOSITORY / "recipes" / system / "reproduce.sh")]

    log = out / "logs" / "sft.log"
    with start(command, tmp_path) as first:  # stopped in SFT
        while not (log.exists() and "starting verl" in log.read_text()):
            assert first.poll() is None
            time.sleep(0.5)
        first.send_signal(signal.SIGTERM)
        said, _ = first.communicate()
    assert first.returncode == 130, said
    assert "stopped in sft" in said

    with start(command, tmp_path) as second:
        said, _ = second.communicate()
    assert second.returncode == 0, said[-5000:]
    assert "demonstrations: complete (" in said
    records = State(out).records
    assert list(records) == [stage.name for stage in stages] and all(record.finished for record in records.values())
    assert records["sft"].attempts == 2 and records["grpo"].attempts == 1

    # each training starts from what the one before it made
    trained = [stage for stage in stages if stage.trained]
    for before, after in pairwise(trained):
        (run,) = (out / after.name).glob("*/run-001")
        assert f"{out / before.name}/" in (run / "command.sh").read_text()
    rows = rows_of((out / "table.md").read_text())
    assert [row[0] for row in rows] == [stage.row.benchmark for stage in stages if stage.row]
    assert all(0 <= float(row[1]) <= 100 and row[3] == "64" for row in rows)

    with start(command, tmp_path) as third:
        said, _ = third.communicate()
    assert third.returncode == 0 and said.count(": complete (") == len(stages)
    assert State(out).records == records
