import pytest
import torch

from agentic_video.training.seams.patches import on_cpu


@pytest.mark.skipif(not on_cpu(), reason="runs where verl runs without GPUs")
def test_cpu_platform_is_in_use() -> None:
    from verl.plugin.platform.platform_manager import get_platform
    from verl.utils.device import get_device_name

    platform = get_platform()
    assert type(platform).__name__ == "PlatformCPU"
    assert get_device_name() == "cpu"
    assert torch.zeros(1).to(platform.current_device()).device.type == "cpu"
    free, total = platform.device_module.mem_get_info()
    assert 0 < free < total
