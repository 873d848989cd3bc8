import argparse
from pathlib import Path

import pytest

from agentic_video.cli import main
from agentic_video.commands import run
from agentic_video.commands.run import options_of
from agentic_video.launch.options import LaunchOptions
from agentic_video.utils.errors import SetupError
from tests.config.configs import RECIPES


def parsed(*words: str) -> LaunchOptions:
    parser = argparse.ArgumentParser()
    run.add_arguments(parser)
    known, overrides = parser.parse_known_args(words)
    known.overrides = overrides
    return options_of(known)


def test_a_recipe_a_stage_and_overrides_in_any_order() -> None:
    assert parsed("eva") == LaunchOptions(RECIPES / "eva")
    assert parsed(str(RECIPES / "eva"), "a=1", "kto", "--profile", "laptop", "b=2", "--dry-run", "--submit") == (
        LaunchOptions(RECIPES / "eva", "kto", "laptop", submit=True, dry_run=True, overrides=("a=1", "b=2"))
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("evva",), "evva: no such recipe; did you mean eva\\? there are eva, "),
        (("./evva",), r"\./evva: no recipe \(a folder with config/"),
        (("eva", "ppo"), r"ppo: neither a stage \(grpo, sft, kto, rft\), an option nor a Hydra override"),
        (("eva", "profile=laptop"), "profile=laptop: a profile is an option, --profile laptop$"),
        (("eva", "--dryrun"), "--dryrun: neither a stage"),
    ],
)
def test_mistakes_are_named(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(SetupError, match=f"^{message}"):
        parsed(*words)


def test_a_mistake_costs_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL_PATH", "TRAIN_FILES", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", "eva", "--profile", "laptop", "trainer.total_epoch=3"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: trainer.total_epoch: no such key; did you mean trainer.total_epochs?")


def test_the_scripts_are_the_command() -> None:
    for script in RECIPES.glob("*/run_*.sh"):
        stage = script.stem.removeprefix("run_")
        called = {"grpo": 'run "$recipe" "$@"', "eval": 'eval --recipe "$recipe" "$@"'}
        expected = called.get(stage, f'run "$recipe" {stage} "$@"')
        assert script.read_text().rstrip().endswith(f'exec "$PYTHON" -m agentic_video.cli {expected}'), script
    assert len(list(Path(RECIPES).glob("*/run_*.sh"))) == 29
