"""Key lines of verl's log, shown while it runs."""

import contextlib
import math
import re
import statistics
from collections import Counter, deque
from collections.abc import Mapping

from agentic_video.report.collapse import WARNING
from agentic_video.report.held_out import GREEDY
from agentic_video.utils.errors import CANNOT_CONTINUE
from agentic_video.utils.units import duration

EPISODE = ("acc", "format", "tool", "turns", "frames")
"""Figures of a GRPO step's episodes that are shown after their reward."""
HELD_OUT = ("accuracy", "reward", "calls", "illegal_calls", "frames")
"""Figures of a validation that are shown for each data source."""
LOSSES = {"train/loss": "loss", "val/loss": "held-out loss", "train/grad_norm": "gradient norm"}
"""Figures of a step of the other stages, with their titles."""
SHOWN_WHOLE = (
    "row left out",
    "rows left out",
    "record left out",
    "records left out",
    "Resuming from",
    "agentic_video could not",
    WARNING,
    "Failed to connect to GCS",  # all that Ray says before it ends the driver
    "Raylet is terminated",
)
"""Lines with one of these texts are shown as they are."""
EXPLAINED = {
    "Exception: The current node timed out during startup": (
        "Ray didn't start within 30 s, and waits no longer: too much else runs on this machine"
    )
}
"""Errors without a remedy, and what is shown instead."""
TOTAL = re.compile(r"Total training steps: (\d+)")
"""verl's line with the number of steps."""
LAST_WORDS = ("DataLoader worker", "vllm.v1.engine.exceptions.EngineDeadError")
"""Errors of PyTorch and vLLM after the last step, when Ray ends processes without waiting for their children."""
RECENT = 5
"""Steps from which the remaining time is estimated."""
ERROR_CHARACTERS = 300
"""Most characters of an error's line."""
ALIKE = 3
"""Most lines of errors that differ in their numbers only: every episode may fail in the same way."""
NUMBERS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]*[0-9][0-9a-f]*")


class Progress:
    """Filter of a log: each step's key figures, warnings of ours, errors.

    Attributes:
        reason: Why the training has ended itself; empty where it hasn't.
    """

    def __init__(self, total: int = 0) -> None:
        self.reason = ""
        self._steps = total
        self._seconds: deque[float] = deque(maxlen=RECENT)
        self._ended = False
        self._errors: Counter[str] = Counter()

    def shown(self, line: str) -> str:
        """Return the lines to show for the log's next line; mostly empty."""
        _, end, after = line.rstrip().partition(CANNOT_CONTINUE)
        if end:
            self.reason = end + after
        if total := TOTAL.search(line):
            self._steps = int(total[1])
        elif "step:" in line and ("episode/reward_sampled:" in line or "val-agentic/" in line):
            step, values = _figures(line)
            self._ended |= "episode/reward_sampled" in values and step == str(self._steps)
            return _grpo_step(step, values, self._total, self._left(step, values))
        elif "step:" in line and ("train/loss:" in line or "val/loss:" in line):
            step, values = _figures(line)
            figures = [f"{name} {_number(values[key], 4)}" for key, name in LOSSES.items() if key in values]
            return f"step {step}{self._total}: " + ", ".join(figures)
        elif any(mark in line for mark in SHOWN_WHOLE):
            return line.rstrip()
        elif explained := next((text for mark, text in EXPLAINED.items() if mark in line), ""):
            return explained
        elif self._ended and any(words in line for words in LAST_WORDS):
            return ""
        elif "Warning" not in line and ("Error" in line or "error:" in line.lower()):
            return self._error(line.rstrip()[:ERROR_CHARACTERS])
        return ""

    @property
    def _total(self) -> str:
        return f" of {self._steps}" if self._steps else ""

    def _left(self, step: str, values: Mapping[str, str]) -> str:
        """Estimated time of the remaining steps; empty where it isn't known."""
        with contextlib.suppress(ValueError):
            self._seconds.append(float(_number(values.get("timing_s/step", ""), 3)))
            left = (self._steps - int(step)) * statistics.fmean(self._seconds)
            if 0 < left < math.inf:
                return f", {duration(left)} left"
        return ""

    def _error(self, line: str) -> str:
        """An error's line, unless there were many like it."""
        alike = NUMBERS.sub("", line)
        self._errors[alike] += 1
        if self._errors[alike] < ALIKE:
            return line
        return f"{line}\n(more like this are in the log only)" if self._errors[alike] == ALIKE else ""


def _figures(line: str) -> tuple[str, dict[str, str]]:
    """The step's number and the figures, as they are written, of a line ``step:7 - name:value - ...``."""
    step, *pairs = line.split("step:", 1)[1].strip().split(" - ")
    return step.strip(), dict(pair.rsplit(":", 1) for pair in pairs if ":" in pair)


def _grpo_step(step: str, values: Mapping[str, str], total: str, left: str) -> str:
    """A line for a training step, and one for each data source of a validation."""
    held_out = _held_out(step, values)
    if "episode/reward_sampled" not in values:
        return "\n".join(held_out)
    shown = [f"reward {_number(values['episode/reward_sampled'])}"]
    shown += [f"{key} {_number(values.get(f'episode/{key}', ''))}" for key in EPISODE]
    shown.append(f"evicted groups {_number(values.get('training/filter_groups/evicted_samples', '0'), 0)}")
    shown.append(f"prob diff {_number(values.get('training/rollout_probs_diff_mean', ''), 1, 'e')}")
    shown.append(f"{_number(values.get('timing_s/step', ''), 1)} s{left}")
    return "\n".join([f"step {step}{total}: " + ", ".join(shown), *held_out])


def _held_out(step: str, values: Mapping[str, str]) -> list[str]:
    """A line for each data source of a validation and for its greedy episodes, from the figures that verl logged."""
    sources: dict[str, list[str]] = {}
    for key, value in values.items():
        # not the classes of a data source, whose keys have a part more, too
        start, *source, figure = key.split("/")
        if start == "val-agentic" and figure in HELD_OUT and source[1:] in ([], [GREEDY]):
            sources.setdefault(", ".join(source), []).append(f"{figure.replace('_', ' ')} {_number(value)}")
    return [f"step {step}, held out, {source}: " + ", ".join(shown) for source, shown in sources.items()]


def _number(text: str, digits: int = 2, kind: str = "f") -> str:
    """A figure, maybe written ``np.float64(1.5)``, with so many digits; a question mark for any other text."""
    try:
        return f"{float(text.split('(')[-1].rstrip(')')):.{digits}{kind}}"
    except ValueError:
        return "?"
