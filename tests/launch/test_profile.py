import pytest

from agentic_video.launch.profile import choose_profile, config_name
from agentic_video.utils.errors import SetupError


def test_no_gpu_means_laptop() -> None:
    assert choose_profile(None, 0, {}) == "laptop"


def test_gpus_without_model_or_data_say_what_to_set() -> None:
    with pytest.raises(SetupError, match="MODEL_PATH and TRAIN_FILES"):
        choose_profile(None, 8, {})
    with pytest.raises(SetupError, match="TRAIN_FILES"):
        choose_profile(None, 8, {"MODEL_PATH": "m"})
    assert choose_profile(None, 8, {"MODEL_PATH": "m", "TRAIN_FILES": "t"}) == "cluster"
    assert choose_profile("laptop", 8, {}) == "laptop"


def test_a_model_alone_asks_for_the_cluster() -> None:
    assert choose_profile(None, 0, {"MODEL_PATH": "m", "TRAIN_FILES": "t"}) == "cluster"


def test_each_stage_asks_for_its_own_data() -> None:
    with pytest.raises(SetupError, match=r"parquet or jsonl file of rows .*types/row\.py"):
        choose_profile("cluster", 8, {})
    with pytest.raises(SetupError, match=r"jsonl file of trajectory records .*types/record\.py"):
        choose_profile("cluster", 8, {}, "sft")


def test_the_config_follows_from_stage_and_profile() -> None:
    assert [config_name("grpo", profile) for profile in ("laptop", "cluster")] == ["laptop", "cluster"]
    assert [config_name("kto", profile) for profile in ("laptop", "cluster")] == ["kto_laptop", "kto"]
