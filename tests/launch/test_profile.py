import pytest

from agentic_video.launch.options import Profile, Stage, changes, choose_profile, config_name
from agentic_video.utils.errors import SetupError

NAMED = {"MODEL_PATH": "m", "TRAIN_FILES": "t"}


@pytest.mark.parametrize(
    ("asked", "gpus", "environment", "stage", "profile"),
    [
        (None, 0, {}, "grpo", "laptop"),
        (None, 0, NAMED, "grpo", "laptop"),  # a model of one's own is trained where one is
        (None, 8, NAMED, "grpo", "cluster"),
        (None, 0, {**NAMED, "RAY_ADDRESS": "auto"}, "grpo", "cluster"),
        (None, 0, {**NAMED, "RAY_ADDRESS": "auto"}, "sft", "laptop"),  # torchrun knows no Ray
        ("laptop", 8, {}, "grpo", "laptop"),
        ("cluster", 0, {**NAMED, "RAY_ADDRESS": "auto"}, "grpo", "cluster"),
    ],
)
def test_the_machine_decides(
    asked: Profile | None, gpus: int, environment: dict[str, str], stage: Stage, profile: Profile
) -> None:
    assert choose_profile(asked, gpus, environment, stage) == profile


@pytest.mark.parametrize(("stage", "said"), [("grpo", ", and RAY_ADDRESS names no cluster"), ("sft", r"none\)\. To")])
def test_a_cluster_s_job_without_gpus_is_refused_at_once(stage: Stage, said: str) -> None:
    with pytest.raises(SetupError, match=f"^the cluster profile needs GPUs: .*{said}"):
        choose_profile("cluster", 0, NAMED, stage)
    assert choose_profile("cluster", 0, NAMED, stage, runs_here=False) == "cluster"


def test_the_config_follows_from_stage_and_profile() -> None:
    assert [config_name("grpo", profile) for profile in ("laptop", "cluster")] == ["laptop", "cluster"]
    assert [config_name("kto", profile) for profile in ("laptop", "cluster")] == ["kto_laptop", "kto"]


def test_an_address_for_jobs_is_not_joined() -> None:
    environment = {**NAMED, "RAY_ADDRESS": "http://head:8265"}
    with pytest.raises(SetupError, match=r"^RAY_ADDRESS=http://head:8265 is where jobs are submitted to \(--submit\)"):
        choose_profile("cluster", 0, environment)
    assert choose_profile("cluster", 0, environment, runs_here=False) == "cluster"


def test_profiles_that_change_the_cluster_s() -> None:
    assert choose_profile("rehearsal", 0, {}) == "rehearsal"  # it needs no GPU, no model and no data
    assert [config_name("grpo", profile) for profile in ("rehearsal", "single", "four")] == ["cluster"] * 3
    assert changes("single") == ["+profile=single"] and changes("cluster") == changes("laptop") == []
