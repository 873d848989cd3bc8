"""docs/faults.md has a line for each fault that tests/chaos tries."""

import re
import subprocess
import sys

import pytest

from tests.docs.tables import REPOSITORY


@pytest.mark.slow  # another pytest collects the tests
def test_each_line_is_a_test() -> None:
    command = [sys.executable, "-m", "pytest", "-m", "chaos", "--collect-only", "-p", "no:cacheprovider", "tests/chaos"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    tests = re.findall(r"::test_(\S+)", done.stdout)
    page = (REPOSITORY / "docs" / "faults.md").read_text(encoding="utf-8")
    named = [
        name
        for line in page.splitlines()
        if line.startswith("| ")
        for name in re.findall(r"`([^`]+)`", line.split("|")[2])
    ]
    assert sorted(named) == sorted(name for name in tests if not name.startswith("then_it_finishes"))
