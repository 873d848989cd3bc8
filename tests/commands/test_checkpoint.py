import json
import shutil
from pathlib import Path

import pytest

from agentic_video.commands.checkpoint import checkpoint_checks
from agentic_video.commands.doctor import DoctorArguments, run
from agentic_video.commands.health import HealthCheck
from agentic_video.systems.registry import SYSTEMS
from agentic_video.toyworld.build.cache import SHIPPED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (shipped,) = SHIPPED.glob("base-*")
    return Path(shutil.copytree(shipped, tmp_path / "model"))


def found(folder: Path) -> dict[str, HealthCheck]:
    return {check.name: check for check in checkpoint_checks(folder)}


def test_a_checkpoint_and_what_each_system_shows_it(folder: Path) -> None:
    checks = found(folder)
    assert list(checks) == ["model", "processor", "chat template", *SYSTEMS]
    assert checks["model"].value.startswith("qwen2_5_vl")
    assert "tokens of 28 pixels" in checks["processor"].value and "<|im_end|>" in checks["chat template"].value
    # a tiny model's processor keeps at most 56x56 pixels, of which a token has 28x28
    assert "420x224 becomes 56x28" in checks["videozoomer"].value
    assert "56x28" in checks["videobrain"].value  # published with cells of 32 pixels
    assert not any(check.remedy for check in checks.values())
    assert run(DoctorArguments(model=folder)) == 0


def test_an_unknown_family_is_refused(folder: Path) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_type": "llava_onevision"}))
    checks = found(folder)
    assert list(checks) == ["model"] and "llava_onevision" in checks["model"].remedy


def test_a_folder_without_a_processor_is_refused(folder: Path) -> None:
    for file in folder.glob("*processor_config.json"):
        file.unlink()
    checks = found(folder)
    assert list(checks) == ["model", "processor"] and checks["processor"].remedy


def test_a_template_that_thinks_and_takes_no_tool_messages(folder: Path) -> None:
    template = (folder / "chat_template.jinja").read_text()
    thinking = template.replace("'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n'")
    assert thinking != template
    no_tools = "{%- for message in messages if message.role != 'tool' -%}"
    (folder / "chat_template.jinja").write_text(thinking.replace("{%- for message in messages -%}", no_tools))
    checks = found(folder)
    assert "<think>" in checks["chat template"].value
    assert "observation_role" in checks["eva"].remedy and not checks["videozoomer"].remedy
