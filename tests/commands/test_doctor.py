from pathlib import Path

import pytest

from agentic_video import cli
from agentic_video.commands import doctor


def test_report_covers_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["doctor"])
    output = capsys.readouterr().out
    for name in ("python", "GPUs", "torch", "ray", "vllm", "verl plugin", "av", "memory", "shared memory", "disk"):
        assert f" {name} " in output


def test_what_is_missing_comes_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = doctor.installed
    monkeypatch.setattr(doctor, "installed", lambda name: None if name in ("vllm", "av") else real(name))
    assert doctor.report() == 1
    lines = capsys.readouterr().out.splitlines()
    for name in ("vllm", "av"):
        place = next(i for i, line in enumerate(lines) if line.startswith(f"!! {name} "))
        assert "missing" in lines[place]
        assert "agentic-video install" in lines[place + 1]


def test_an_older_processor_is_a_note_and_nothing_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = doctor.Finding("CPU", "2 cores, AVX-512 no", note="mostly tried with it")
    monkeypatch.setattr(doctor, "findings", lambda: iter([found]))
    assert doctor.report() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("ok CPU ") and lines[1].strip() == "(mostly tried with it)"


def test_what_is_said_of_a_processor_without_avx_512(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.read_text
    monkeypatch.setattr(doctor, "count_gpus", lambda: 0)
    monkeypatch.setattr(doctor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(
        Path, "read_text", lambda self, **o: "flags: avx2" if str(self) == "/proc/cpuinfo" else real(self, **o)
    )
    (cpu,) = [one for one in doctor.findings() if one.name == "CPU"]
    assert cpu.value.endswith("AVX-512 no") and "AVX-512" in cpu.note and not cpu.remedy


def test_another_verl_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: "0.8.0")
    found = {finding.name: finding for finding in doctor.findings()}
    assert "0.9.1" in found["verl"].remedy
