"""The summary of a finished stage that torchrun started: its losses, and the checkpoint that the next stage takes."""

from pathlib import Path

from agentic_video.report.metrics import load_metrics, series
from agentic_video.report.summary import checkpoints_of, left_out_text, noted, read_record
from agentic_video.types.text import printable
from agentic_video.utils.checkpoints import DamagedCheckpoint, newest_whole
from agentic_video.utils.workdir import write_whole

LOSSES = {"train/loss": "loss", "val/loss": "held-out loss"}


def newest_step(folder: Path) -> Path | None:
    """The latest checkpoint that a run can resume from, or None."""
    try:
        return newest_whole(checkpoints_of(folder))[0]
    except DamagedCheckpoint:
        return None


def newest_checkpoint(folder: Path) -> Path | None:
    """The latest Hugging Face checkpoint of a run, with its weights, or None."""
    step = newest_step(folder)
    if step is None:
        return None
    for found in (step / "huggingface", step / "actor" / "huggingface"):
        if any(found.glob("*.safetensors")):
            return found
    return None


def write_losses(folder: Path) -> str:
    """Write ``summary.md`` into a run's folder and return its text."""
    record = read_record(folder)
    metrics, left_out = load_metrics(folder)
    seconds, peak = (noted(record, key, folder, left_out) for key in ("seconds", "peak_bytes"))
    lines = [
        f"# {record.get('recipe', folder.parent.name)}, profile {record.get('profile', 'unfinished')}",
        "",
        f"{max(metrics, default=0)} steps in {seconds / 60:.1f} minutes, peak memory {peak / 2**30:.1f} GiB",
        "",
        *([f"{left_out_text(left_out)}.", ""] if left_out else []),
        "| | first | last |",
        "|---|---|---|",
    ]
    for key, name in LOSSES.items():
        steps, values = series(metrics, key)
        if values:
            lines.append(f"| {name} | {values[0]:.4f} (step {steps[0]}) | {values[-1]:.4f} (step {steps[-1]}) |")
    checkpoint = newest_checkpoint(folder)
    if checkpoint is not None:
        lines += ["", f"checkpoint for the next stage (`MODEL_PATH`): {checkpoint}"]
    text = printable("\n".join(lines) + "\n")
    write_whole(folder / "summary.md", [text])
    return text
