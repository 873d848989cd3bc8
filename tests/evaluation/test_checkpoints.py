"""The table of released checkpoints, and custom tables."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import settings_of
from agentic_video.evaluation.checkpoints import Checkpoint, checkpoints, named
from agentic_video.evaluation.model import ModelOptions, model_spec
from agentic_video.evaluation.published import published
from agentic_video.utils.errors import SetupError
from tests.config.configs import set_environment
from tests.evaluation.conftest import RECIPES

TABLE = checkpoints()
HERE = [name for name, entry in TABLE.items() if (RECIPES / entry.recipe / "config").is_dir()]
"""Those whose recipe is in this repository."""


def test_every_entry_has_a_source_and_a_size() -> None:
    assert {"videozoomer-7b", "eva-7b"} <= set(HERE)
    for entry in TABLE.values():
        assert entry.source and entry.model.count("/") == 1 and entry.settings and entry.sampling
        assert entry.weight_bytes is not None and 15e9 < entry.weight_bytes < 20e9
    assert len({entry.model for entry in TABLE.values()}) == len(TABLE)


def test_every_entry_has_published_numbers() -> None:
    rows = {(row.paper, row.model) for row in published()}
    assert all((entry.paper, entry.published_as) in rows for entry in TABLE.values())
    paper = TABLE["videozoomer-7b"].published("mlvu_dev")
    assert paper is not None and (paper.accuracy, paper.table) == (68.8, "Table 1")
    assert TABLE["videozoomer-7b"].published("unheard of") is None


@pytest.mark.parametrize("name", HERE)
def test_its_settings_hold_in_its_recipe(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key is one of the recipe's config, and its episodes are what the table says."""
    set_environment(monkeypatch)
    entry = TABLE[name]
    config = compose_recipe(RECIPES / entry.recipe, "cluster", entry.overrides)
    for key, value in entry.settings.items():
        found: Any = config
        for part in key.split("."):
            found = found[part]
        assert found == value, key
    system = settings_of(config).system
    assert system.max_turns == entry.settings["agentic_video.system.max_turns"]
    spec = model_spec(ModelOptions("m", "vllm", temperature=entry.sampling["temperature"]), config)
    assert spec.temperature == entry.sampling["temperature"]


def test_paravt_is_played_as_its_profile_of_the_released_evaluation_says() -> None:
    profile = RECIPES / "paravt/config/profile/published_evaluation.yaml"
    published = yaml.safe_load(profile.read_text())["agentic_video"]["system"]
    settings = TABLE["paravt-8b"].settings
    differ = {key for key, value in published.items() if settings.get(f"agentic_video.system.{key}") != value}
    assert differ == {"forced_answer"}, "its words may differ"


@pytest.mark.parametrize(("name", "stage"), [("sft", "grpo"), ("rl", "grpo"), ("rft", "agent")])
def test_longvt_s_prompts_have_room_for_an_hour_s_subtitles(name: str, stage: str) -> None:
    """The released evaluation serves without a maximum length. A frame of 16:9 is 62 tokens, a line of subtitles 32."""
    settings = TABLE[f"longvt-7b-{name}"].settings
    frames = int(settings["agentic_video.system.overview_max_frames"])
    prompt, length = (
        int(settings[key]) for key in ("data.max_prompt_length", "actor_rollout_ref.rollout.max_model_len")
    )
    assert 62 * frames + 32 * 512 + 1_500 <= prompt <= length - 16_384
    run = yaml.safe_load((RECIPES / "longvt/reproduce.yaml").read_text())["benchmarks"][stage]["run"].split()
    assert {f"data.max_prompt_length={prompt}", f"actor_rollout_ref.rollout.max_model_len={length}"} <= set(run)


def test_checkpoints_are_chosen_by_name() -> None:
    assert named("eva-7b,videozoomer-7b,eva-7b", TABLE) == [TABLE["eva-7b"], TABLE["videozoomer-7b"]]
    assert named("all", TABLE) == list(TABLE.values())


@pytest.mark.parametrize("name", ["", "videozoomer", "eva-7b,nothing", "EVA-7B"])
def test_an_unknown_name_costs_one_line_with_the_known_ones(name: str) -> None:
    with pytest.raises(SetupError) as caught:
        named(name, TABLE)
    assert caught.value.key == "--checkpoint" and all(known in str(caught.value) for known in TABLE)


GOOD = {"name": "mine", "model": "me/mine", "recipe": "videozoomer"}


def test_a_custom_table_adds_and_replaces_entries(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump([GOOD, {**GOOD, "name": "eva-7b", "settings": {"a.b": True}}]))
    found = checkpoints([file])
    assert found["mine"] == Checkpoint("mine", "me/mine", "videozoomer") and found["mine"].weight_bytes is None
    assert found["eva-7b"].overrides == ("a.b=true",), "it takes the place of the table's"
    assert set(found) == {*TABLE, "mine"}


@pytest.mark.parametrize(
    ("entries", "key"),
    [
        ("[", None),
        ("{}", None),
        ([], None),
        ([3], "entry 0"),
        ([{**GOOD, "frames": 3}], "entry 0.frames"),
        ([{**GOOD, "model": ""}], "entry 0"),
        ([GOOD, {"name": "x"}], "entry 1.model"),
        ([{**GOOD, "name": "../x"}], "entry 0"),
        ([{**GOOD, "name": "all"}], "entry 0"),
        ([GOOD, GOOD], "mine"),
        ([{**GOOD, "sampling": {"temperature": "hot"}}], "entry 0.sampling"),
        ([{**GOOD, "sampling": {"seed": 1}}], "entry 0"),
        ([{**GOOD, "settings": {"a": [1]}}], "entry 0.settings"),
        ([{**GOOD, "settings": [1]}], "entry 0.settings"),
    ],
)
def test_a_wrong_table_costs_one_line(entries: Any, key: str | None, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(entries if isinstance(entries, str) else yaml.safe_dump(entries))
    with pytest.raises(SetupError) as caught:
        checkpoints([file])
    assert caught.value.key == (f"--checkpoints {file}" if key is None else key)
    assert "mine.yaml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught:
        checkpoints([tmp_path / "none.yaml"])
    assert caught.value.key == "--checkpoints"


@given(st.one_of(st.booleans(), st.integers(-(10**9), 10**9), st.floats(0, 1), st.text("ab <>'/\\,{}=:.", max_size=20)))
def test_settings_come_through_hydra_s_grammar(value: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    entry = Checkpoint("n", "m", "r", settings={"a.b": value})
    (parsed,) = OverridesParser.create().parse_overrides(list(entry.overrides))
    read = parsed.value()
    assert str(read) == value if isinstance(value, str) else read == value
