import pytest
from omegaconf import OmegaConf

from agentic_video.config.settings import Settings, settings_of

SYSTEM = {"_target_": "agentic_video.systems.videozoomer.system.VideoZoomer"}


def settings(**log: object) -> Settings:
    return settings_of(OmegaConf.create({"agentic_video": {"system": SYSTEM, **({"log": log} if log else {})}}))


def test_pictures_have_a_default_and_can_be_turned_off() -> None:
    assert settings().log.validation_pictures == 3
    assert settings(validation_pictures=0).log.validation_pictures == 0


@pytest.mark.parametrize(("key", "value", "message"), [
    ("validation_pictures", -1, r"agentic_video\.log: validation_pictures must be from 0 to 64, got -1"),
    ("validation_pictures", 65, "got 65"),
    ("pictures", 1, r"agentic_video\.log\.pictures: unknown key"),
])  # fmt: skip
def test_a_bad_value_is_named(key: str, value: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**{key: value})
