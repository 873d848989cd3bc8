"""What verl finds after it has loaded the plugin."""

import subprocess
import sys

import pytest

from agentic_video.config.features import TRAINER_MODES
from agentic_video.training import plugin
from agentic_video.training.seams.hooks import loudly


def test_plugin_is_light() -> None:
    heavy = "[m for m in ('torch', 'verl', 'ray', 'av') if m in sys.modules]"
    code = f"import agentic_video.training.plugin, sys; print({heavy})"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_another_version_of_verl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "version", lambda name: "0.8.0")
    with pytest.raises(SystemExit, match=r"verl 0\.9\.1.*0\.8\.0"):
        plugin.install()


def test_a_failing_hook_is_loud(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(module: object) -> None:
        raise ValueError("no such thing")

    with pytest.raises(SystemExit, match="no such thing"):
        loudly(broken)(sys)
    assert "Traceback" in capsys.readouterr().err


def test_agent_loop_reward_manager_and_trainer_are_registered() -> None:
    from verl.experimental.agent_loop.agent_loop import _agent_loop_registry
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.trainer.ppo.v1 import get_trainer_cls
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    assert _agent_loop_registry["video_agent"]["_target_"] == "agentic_video.training.loop.agent_loop.VideoAgentLoop"
    assert get_reward_manager_cls("video_agent").__name__ == "VideoAgentRewardManager"
    assert issubclass(get_trainer_cls("agentic_video"), PPOTrainerSync)
    for name, mode in TRAINER_MODES.items():
        assert issubclass(get_trainer_cls(mode), get_trainer_cls(name))
