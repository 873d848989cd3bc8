from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from agentic_video.config.overrides import quoted
from agentic_video.launch.stage import key_names, resolved_overrides
from agentic_video.utils.errors import SetupError

TEXTS = st.text(
    alphabet=st.sampled_from("ab '\"\\\\${}[],:=#\n") | st.characters(exclude_categories=["Cs"]), max_size=12
)


def read(text: str) -> Any:
    """What a config holds after an override ``k=<text>``."""
    parsed = OverridesParser.create().parse_override(f"k={text}")
    config = OmegaConf.create({"k": None})
    OmegaConf.update(config, "k", parsed.value())
    return OmegaConf.to_container(config, resolve=True)["k"]  # type: ignore[index,call-overload]


@given(TEXTS)
def test_any_text_arrives_as_it_is(text: str) -> None:
    assert read(quoted(text)) == text


@given(st.recursive(TEXTS | st.integers(-9, 9) | st.booleans() | st.none(), lambda some: st.lists(some, max_size=3)))
def test_so_does_what_holds_texts(value: Any) -> None:
    assert read(quoted(value)) == value


def test_a_mapping_of_names() -> None:
    assert read(quoted({"A_B": "it's", "c": "1"})) == {"A_B": "it's", "c": "1"}


def test_what_the_environment_reports_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    config = OmegaConf.create(
        {
            "trainer": {"nnodes": "${oc.decode:${oc.env:NNODES,2}}", "epochs": 3},
            "files": "${oc.env:VAL_FILES,${oc.env:TRAIN_FILES}}",
            "again": "${files}",
            "judge": {"url": "${oc.env:JUDGE_BASE_URL}"},
        }
    )
    for name in ("VAL_FILES", "JUDGE_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NNODES", "4")
    monkeypatch.setenv("TRAIN_FILES", "/data/it's.parquet")
    # what refers to another key follows it by itself
    assert resolved_overrides(config, {"judge.url"}) == ["trainer.nnodes=4", "files='/data/it\\'s.parquet'"]
    with pytest.raises(SetupError, match=r"^judge\.url: .*JUDGE_BASE_URL"):
        resolved_overrides(config)


def test_variables_of_keys_are_found_wherever_a_config_names_them() -> None:
    config = OmegaConf.create(
        {
            "judge": {"api_key_env": "MY_JUDGE"},
            "verifier": None,
            "system": {"service": {"url": "http://a", "api_key_env": "${oc.env:NAMED,MY_TOOL}"}, "turns": 3},
            "windows": [1, 2],
        }
    )
    assert list(key_names(config)) == ["MY_JUDGE", "MY_TOOL"]
