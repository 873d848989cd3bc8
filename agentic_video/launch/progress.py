"""What of verl's log a user wants to see."""

from collections.abc import Mapping

HELD_OUT = ("accuracy", "reward", "calls", "illegal_calls", "frames")
"""What is shown of a validation, for each data source."""


def interesting(line: str) -> str:
    """The part of a log line that a user wants to see: each step's key figures, warnings of ours, errors."""
    if "step:" in line and ("episode/reward_sampled:" in line or "val-agentic/" in line):
        values = dict(pair.rsplit(":", 1) for pair in line.split("step:", 1)[1].strip().split(" - ") if ":" in pair)
        step = line.split("step:", 1)[1].split(" - ")[0].strip()
        held_out = _held_out(step, values)
        if "episode/reward_sampled" not in values:
            return "\n".join(held_out)
        shown = [f"reward {_number(values.get('episode/reward_sampled', ''))}"]
        shown += [
            f"{key} {_number(values.get(f'episode/{key}', ''))}" for key in ("acc", "format", "tool", "turns", "frames")
        ]
        shown.append(f"evicted groups {_number(values.get('training/filter_groups/evicted_samples', '0'), 0)}")
        shown.append(f"prob diff {_number(values.get('training/rollout_probs_diff_mean', ''), 1, 'e')}")
        shown.append(f"{_number(values.get('timing_s/step', ''), 1)} s")
        return "\n".join([f"step {step}: " + ", ".join(shown), *held_out])
    if "step:" in line and ("train/loss:" in line or "val/loss:" in line):
        step, *pairs = line.split("step:", 1)[1].strip().split(" - ")
        values = dict(pair.rsplit(":", 1) for pair in pairs if ":" in pair)
        names = {"train/loss": "loss", "val/loss": "held-out loss", "train/grad_norm": "gradient norm"}
        shown = [f"{name} {_number(values[key], 4)}" for key, name in names.items() if key in values]
        return f"step {step.strip()}: " + ", ".join(shown)
    if any(mark in line for mark in ("row left out", "rows left out", "Resuming from", "agentic_video could not")):
        return line.rstrip()
    if "Warning" in line:
        return ""
    if "Error" in line or "error:" in line.lower():
        return line.rstrip()[:300]
    return ""


def _held_out(step: str, values: Mapping[str, str]) -> list[str]:
    """A line for each data source of a validation, from the figures that verl logged."""
    sources: dict[str, list[str]] = {}
    for key, value in values.items():
        # not the classes of a data source, whose keys have a part more
        start, *rest = key.split("/")
        if start == "val-agentic" and len(rest) == 2 and rest[1] in HELD_OUT:
            sources.setdefault(rest[0], []).append(f"{rest[1].replace('_', ' ')} {_number(value)}")
    return [f"step {step}, held out, {source}: " + ", ".join(shown) for source, shown in sources.items()]


def _number(text: str, digits: int = 2, kind: str = "f") -> str:
    try:
        return f"{float(text.split('(')[-1].rstrip(')')):.{digits}{kind}}"
    except ValueError:
        return "?"
