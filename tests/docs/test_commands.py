"""The commands in the documentation: each is run by a test or says what it needs, and all of them can be parsed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from importlib import import_module
from pathlib import Path

import pytest

from agentic_video import cli
from agentic_video.commands.parsing import COMMANDS
from agentic_video.launch import main as launching
from tests.config.configs import RECIPES, SYSTEMS, set_environment
from tests.converters.published import SAMPLES
from tests.docs.commands import (
    PAGES,
    Block,
    blocks,
    commands,
    environment_of,
    listing_with,
    name_of,
    ours,
    outside_blocks,
)
from tests.docs.tables import REPOSITORY
from tests.report.viewer.records import record, write
from tests.share import a_few

NEEDS = re.compile(r"(needs [\w '&]+|takes hours|takes half an hour)(, then GPUs)?")
"""What the title of a block may say; readers of the site see it above the block."""
BY_PAGE = {
    "docs/walkthrough.md": "tests/e2e/test_walkthrough.py",
    "docs/own-script.md": "tests/e2e/test_own_script.py",
    "CONTRIBUTING.md": ".ci/run",
}
"""Pages whose unmarked blocks one file runs from top to bottom."""
VIDEOZOOMER = "tests/e2e/test_videozoomer_laptop.py::test_resumes_at_the_step_after_the_checkpoint"
RECIPE = "tests/e2e/test_recipes_laptop.py::"
HERE = "tests/docs/test_commands.py::test_what_is_quick_runs_as_it_is_written"
EXECUTED = {
    "bash recipes/videozoomer/run_grpo.sh": VIDEOZOOMER,
    **{f"bash recipes/{name}/run_grpo.sh": f"{RECIPE}test_grpo" for name in SYSTEMS if name != "videozoomer"},
    **{f"bash recipes/{name}/run_sft.sh": f"{RECIPE}test_sft" for name in SYSTEMS},
    "bash recipes/videozoomer/run_grpo.sh +profile=transcripts": f"{RECIPE}test_transcripts",
    "bash recipes/videozoomer/run_eval.sh --limit 16": f"{RECIPE}test_evaluation",
    **{f"bash recipes/{name}/reproduce.sh": "tests/e2e/test_reproduce.py::test_a_rehearsal" for name in SYSTEMS},
    "agentic-video reproduce videozoomer --laptop --plan": HERE,
    "bash recipes/videozoomer/run_grpo.sh --profile laptop trainer.logger=[console,tensorboard,file,wandb]": (
        f"{RECIPE}test_offline_weights_and_biases"
    ),
    "bash recipes/videozoomer/run_grpo.sh agentic_video.reward.path=few_turns.py agentic_video.reward.name=few_turns": (
        f"{RECIPE}test_the_pages_custom_reward"
    ),
    "bash examples/custom_reward/run.sh": f"{RECIPE}test_custom_reward",
    "bash examples/custom_reward/run.sh agentic_video.reward.mode=replace": f"{RECIPE}test_custom_reward",
    "bash examples/custom_tool/run.sh": "tests/examples/test_custom_tool.py::test_two_steps_of_the_laptop_job",
    "bash examples/custom_tool/run.sh trainer.total_training_steps=2": (
        "tests/examples/test_custom_tool.py::test_two_steps_of_the_laptop_job"
    ),
    "bash examples/custom_family/run.sh": "tests/examples/test_custom_family.py::test_two_steps_of_the_laptop_job",
    "bash run_tests.sh": "tests/e2e/test_fresh_clone.py::test_one_command_passes_the_tests",
    "agentic-video view outputs/videozoomer-laptop/run-001 --serve": (
        "tests/report/viewer/test_server.py::test_page_and_its_headers"
    ),
    "agentic-video view outputs/videozoomer-laptop/run-001": HERE,
    ".venv/bin/agentic-video view outputs/videozoomer-laptop/run-001": HERE,
    "agentic-video mine outputs/eva-cluster/run-001 --below 0.5 --out mined.jsonl": HERE,
    "agentic-video filter outputs/longvt-cluster/run-001 --out rollouts.jsonl": HERE,
    "agentic-video templates outputs/framethinker-cluster/run-001 kept.jsonl --out templates.json": HERE,
    "agentic-video lengths kept.jsonl --out lengths.json": HERE,
    "agentic-video convert --list": HERE,
    "agentic-video convert mlvu --split dev --source /data/MLVU --videos /data/MLVU/video "
    "--out /data/rows/mlvu_dev.parquet": HERE,
    "agentic-video doctor": HERE,
    "agentic-video plan --recipe videozoomer --gpus 16 --gpu-memory 80 --host-memory 1024": HERE,
    "agentic-video plan --recipe framethinker --profile single --gpu-memory 24 --host-memory 64 "
    "actor_rollout_ref.actor.fsdp_config.offload_policy=True": HERE,
    "agentic-video plan --recipe eva --profile four --host-memory 512 --json": HERE,
    "bash recipes/videozoomer/run_grpo.sh --dry-run": "tests/e2e/test_walkthrough.py",
    "bash recipes/videozoomer/run_grpo.sh --profile laptop +method=gspo": (
        "tests/e2e/test_methods_laptop.py::test_three_steps"
    ),
    "bash recipes/videozoomer/run_grpo.sh --profile laptop +method=distillation": "tests/e2e/test_distillation.py",
}
"""Commands of blocks without a title, and the test that runs each."""
QUICK = [command for command, test in EXECUTED.items() if test == HERE]
RAY_NODES = "agentic_video.launch.ray_nodes"
"""Takes a command of the user's, and no options."""
SMALL_PARTS = {"export", "mkdir", "cd", "source", "git"}
"""What sets a command up."""

ALL = list(blocks())


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch)


@pytest.mark.parametrize("block", ALL, ids=str)
def test_a_block_runs_in_a_test_or_says_what_it_needs(block: Block) -> None:
    if block.shown:
        return
    if block.needs:
        assert NEEDS.fullmatch(block.needs), block.needs
        return
    for command in commands(block.text):
        assert block.page in BY_PAGE or command[0] in SMALL_PARTS or " ".join(command) in EXECUTED, " ".join(command)


def test_every_registered_command_is_in_the_documentation() -> None:
    written = {" ".join(command) for block in ALL for command in commands(block.text)}
    assert set(EXECUTED) - written <= {"agentic-video doctor"}


@pytest.mark.parametrize("test", sorted({*EXECUTED.values(), *BY_PAGE.values()}))
def test_the_tests_that_are_named_exist(test: str) -> None:
    path, _, function = test.partition("::")
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert not function or re.search(rf"^def {function}\(", text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_in_bash_blocks(page: Path) -> None:
    """A line that looks like a command anywhere else would go unchecked."""
    stray = re.findall(r"^ *(?:agentic-video|bash (?:recipes|examples)/) ?.*", outside_blocks(page), re.MULTILINE)
    assert stray == []


@pytest.mark.parametrize("block", ALL, ids=str)
def test_pip_fetches_nothing_that_only_sounds_like_this_package(block: Block) -> None:
    """PyPI's ``agentic-video`` is somebody else's, and this package isn't there: pip gets a file or a folder."""
    for command in commands(block.text):
        if "pip" in [word.rpartition("/")[2] for word in command]:
            named = [word for word in command if re.match(r"agentic[-_.]video", word.lower())]
            assert named == [], command


def ours_in(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for command in commands(text):
        if found := ours(command):
            yield found


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What commands would have started; the real parsers read their words, and nothing runs."""
    asked: list[object] = []

    def note(options: object) -> int:
        asked.append(options)
        return 0

    monkeypatch.setattr(launching, "launch", note)
    for name in COMMANDS:
        if name != "run":  # which reads some of its words itself
            module = import_module(f"agentic_video.commands.{name}")
            monkeypatch.setattr(module, "run", wraps(module.run)(lambda options: note(options)))
    return asked


@pytest.mark.parametrize("block", ALL, ids=str)
def test_every_command_of_ours_can_be_parsed(
    block: Block, parsed: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment_of(block.text).items():
        monkeypatch.setenv(name, value)
    for program, words in ours_in(block.text):
        if (
            block.shown
            or program.startswith(("run_tests", "recipes/setup", "recipes/moments", "examples/own_script", RAY_NODES))
            or "recipes/moments" in words
        ):
            continue
        assert parse(program, words) == 0, (program, words)


def jobs() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(profile, environment, words after ``agentic-video``) of every training command, each once."""
    for block in (block for block in ALL if block.page not in BY_PAGE):
        given = " ".join(f"{name}={value}" for name, value in environment_of(block.text).items())
        for program, words in ours_in(block.text):
            script = re.fullmatch(r"recipes/(\w+)/run_(grpo|sft|kto|rft)\.sh", program)
            if script and script[1] in SYSTEMS:
                words = (str(RECIPES / script[1]), script[2], *words)
            elif program == "agentic-video" and words[0] == "run" and words[1] != "recipes/moments":
                words = words[1:]
            else:
                continue
            named = words[words.index("--profile") + 1] if "--profile" in words else ""
            profile = named or ("cluster" if block.needs else "laptop")
            yield profile, given, tuple(word for word in words if word != "--submit")


# Each takes seconds: a third of them with the slow tests, the others with the weekly ones.
@pytest.mark.parametrize(
    ("profile", "given", "words"),
    [
        pytest.param(*job, marks=pytest.mark.recipes if number % 3 else pytest.mark.slow)
        for number, job in enumerate(sorted(set(jobs())))
    ],
    ids=lambda value: None,
)
def test_every_training_command_passes_its_dry_run(
    profile: str,
    given: str,
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A dry run checks profile, config, overrides and inputs, and builds nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if profile in ("laptop", "rehearsal"):  # these make their own model and world
        for name in ("MODEL_PATH", "TRAIN_FILES"):
            monkeypatch.delenv(name, raising=False)
    for name, value in (pair.split("=", 1) for pair in given.split()):
        monkeypatch.setenv(name, value)
    (tmp_path / "few_turns.py").write_text(listing_with("few_turns"), encoding="utf-8")
    chosen = [] if "--profile" in words else ["--profile", profile]
    if profile == "cluster" and {"sft", "kto", "rft"} & set(words):
        chosen.append("trainer.n_gpus_per_node=8")  # torchrun counts this machine's
    assert cli.main(["run", *words, *chosen, "--dry-run"]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert f": profile {profile}" in said and re.search(r"-m (verl\.trainer|torch\.distributed)", said)
    assert not (tmp_path / "cache").exists()


def parse(program: str, words: Sequence[str]) -> int:
    """The exit status of a program's real ``main``."""
    script = re.fullmatch(r"recipes/(\w+)/(?:run_)?(\w+)\.sh", program)
    if program in ("agentic-video", "agentic_video.cli"):
        return cli.main(words)
    if script and script[2] == "reproduce":
        return cli.main(["reproduce", str(RECIPES / script[1]), *words])
    if script and script[2] == "eval":
        return cli.main(["eval", "--recipe", str(RECIPES / script[1]), *words])
    if script:
        return cli.main(["run", str(RECIPES / script[1]), script[2], *words])
    if program.startswith("examples/"):
        text = (REPOSITORY / program).read_text(encoding="utf-8").replace("$example/../../", "")
        ((script_of, added),) = [
            found for command in commands(text) if (found := ours(command)) and found[0].startswith("recipes/")
        ]
        return parse(script_of, [*(word for word in added if word != "$@"), *words])
    assert program in ("benchmarks/learning/run.py", "benchmarks/gpu/run.py"), program
    done = subprocess.run(
        [sys.executable, REPOSITORY / program, *words, "--help"], capture_output=True, text=True, check=False
    )
    named = {word for word in words if word.startswith("--")}
    return done.returncode or int(not named <= set(re.findall(r"--[\w-]+", done.stdout)))


@pytest.mark.parametrize("block", ALL, ids=str)
def test_files_of_the_repository_exist(block: Block) -> None:
    pattern = r"(?:agentic_video|benchmarks|docker|docs|examples|recipes|tests)/[\w./-]+|run_tests\.sh"
    for command in commands(block.text):
        for word in command:
            if re.fullmatch(pattern, word) and not word.startswith("recipes/moments"):
                assert (REPOSITORY / word).exists(), word


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with what the quick commands read, and ``agentic-video`` as an environment has it."""
    program = tmp_path / ".venv" / "bin" / "agentic-video"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m agentic_video.cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    for run in ("videozoomer-laptop", "eva-cluster", "framethinker-cluster"):
        one = record(acc=0.0, provenance={"source": "grpo", "step": 1})
        system = run.partition("-")[0]
        one = replace(one, trajectory=replace(one.trajectory, system=system))
        written = write(tmp_path / "outputs" / run / "run-001" / "episodes" / "step_000001.jsonl", one)
    good = record(acc=1.0, provenance={"source": "grpo", "step": 1})
    good = replace(good, qa=replace(good.qa, windows=((0.0, 9.0),)))
    good = replace(good, trajectory=replace(good.trajectory, notes={"last_look": [0.0, 8.0]}))
    write(tmp_path / "outputs" / "longvt-cluster" / "run-001" / "episodes" / "step_000001.jsonl", good)
    shutil.copy(written, tmp_path / "kept.jsonl")
    sample = SAMPLES["mlvu"]
    sample.write(tmp_path / "data" / "MLVU")
    (tmp_path / "data" / "MLVU" / "videos").rename(tmp_path / "data" / "MLVU" / "video")
    (tmp_path / "data" / "rows").mkdir()
    return tmp_path


LEAVES: Mapping[str, str] = {
    "view": "outputs/videozoomer-laptop/run-001/episodes.html",
    "mine": "mined.jsonl",
    "filter": "rollouts.jsonl",
    "templates": "templates.json",
    "lengths": "lengths.json",
    "mlvu": "data/rows/mlvu_dev.parquet",
}


# Those of plans and the doctor take longest; tests/commands calls them in this process.
@pytest.mark.parametrize("command", a_few(QUICK, lambda command: not re.search(r" (plan|reproduce|doctor)\b", command)))
def test_what_is_quick_runs_as_it_is_written(command: str, workplace: Path) -> None:
    """In a folder of its own, which also stands for the root of the paths that begin with /data."""
    path = f"{workplace / '.venv' / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command.replace(" /data/", f" {workplace}/data/")],
        cwd=workplace,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    # The doctor says by its status whether something is missing on this machine.
    assert done.returncode == 0 or (command.endswith("doctor") and "ok python" in done.stdout), done.stderr
    for part, left in LEAVES.items():
        if f" {part} " in command:
            assert (workplace / left).stat().st_size > 0


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_running_text_names_commands_that_exist(page: Path) -> None:
    for word in re.findall(r"`(?:\.venv/bin/)?agentic-video ([a-z]+)", page.read_text(encoding="utf-8")):
        assert word in COMMANDS, word
