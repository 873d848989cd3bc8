"""Alarm about a format that hardly any of a run's first episodes keeps, with its most likely cause."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

LEAST_KEPT = 0.05
"""A smaller share of episodes that keep the format is an alarm."""
LIKELY = 0.5
"""Share of the episodes from which on a cause is named."""
ALARM = "collapse/format_never"
PREFIX = "format_alarm/"

Texts = Sequence[str]


def _begins_twice(texts: Texts, end: str) -> bool:
    return any("<think>" in text.partition("<think>")[2].partition("</think>")[0] for text in texts)


def _never_opened(texts: Texts, end: str) -> bool:
    return any("</think>" in text and "<think>" not in text.partition("</think>")[0] for text in texts)


def _cut(texts: Texts, end: str) -> bool:
    return end == "token_budget"


def _thoughtless(texts: Texts, end: str) -> bool:
    return bool(texts) and not any("<think>" in text for text in texts)


CAUSES: Mapping[str, tuple[Callable[[Texts, str], bool], str]] = {
    "begins_twice": (
        _begins_twice,
        "replies open <think> twice: the model's chat template opens it (or the system's reply_prefix does), and the "
        "model writes it again; start from a checkpoint that was trained with this template, make its SFT data with "
        "it, or set data.apply_chat_template_kwargs.enable_thinking=False where the template reads that",
    ),
    "never_opened": (
        _never_opened,
        "replies close a thought that they never open: the model was trained with a chat template that opens <think>, "
        "and this one doesn't; use the checkpoint's own chat template, or agentic_video.system.reply_prefix",
    ),
    "cut": (
        _cut,
        "episodes run out of tokens before they answer: raise data.max_response_length or "
        "agentic_video.max_turn_tokens, or take a checkpoint that thinks less",
    ),
    "thoughtless": (
        _thoughtless,
        "replies have no <think>: if the system asks for it, the checkpoint doesn't know its grammar (another "
        "system's, or a base model without the cold start), or its chat template turns thinking off",
    ),
}
"""Causes in the order in which they are named: a test of an episode, and the remedy."""
UNKNOWN = (
    "most likely the checkpoint doesn't know this system's grammar (another system's, or a base model without the cold "
    "start)"
)


class FormatAlarm:
    """Counter of a run's first episodes, of this start; with ``after`` 0 it counts none."""

    def __init__(self, after: int):
        self._after = after
        self._counts = dict.fromkeys(("episodes", "kept", *CAUSES), 0)
        self._done = after <= 0

    def step(self, episodes: Iterable[tuple[float, Mapping[str, Any]]]) -> tuple[dict[str, float], str]:
        """Count a step's episodes, each with the format's score and the trajectory as plain data.

        Returns:
            Once, when there are enough: :data:`ALARM` and the shares, for the log; and the alarm's text, empty where
            the format is kept.
        """
        if self._done:
            return {}, ""
        for kept, trajectory in episodes:
            texts = [str(turn.get("text", "")) for turn in trajectory.get("turns", ())]
            self._counts["episodes"] += 1
            self._counts["kept"] += kept > 0
            for name, (shows, _) in CAUSES.items():
                self._counts[name] += shows(texts, str(trajectory.get("end", "")))
        total = self._counts["episodes"]
        if total < self._after:
            return {}, ""
        self._done = True
        metrics = {PREFIX + name: count / total for name, count in self._counts.items()}
        metrics[PREFIX + "episodes"] = float(total)
        metrics[ALARM] = float(metrics[PREFIX + "kept"] < LEAST_KEPT)
        return metrics, alarm_text(metrics)


def alarm_text(metrics: Mapping[str, float]) -> str:
    """The alarm in a step's metrics; empty without one."""
    if not metrics.get(ALARM):
        return ""
    shares = {name: metrics.get(PREFIX + name, 0.0) for name in CAUSES}
    found = next((name for name, share in shares.items() if share >= LIKELY), None)
    cause = f"in {shares[found]:.2f} of them {CAUSES[found][1]}" if found else UNKNOWN
    return (
        f"the format is never learnt from: {metrics.get(PREFIX + 'kept', 0.0):.2f} of the first "
        f"{metrics.get(PREFIX + 'episodes', 0.0):.0f} episodes keep it, so its reward is always the same; {cause}. "
        "Look at some episodes (agentic-video view)"
    )


def alarms_of(metrics: Mapping[int, Mapping[str, float]]) -> list[str]:
    """A run's alarms, by its metrics by step; a resumed run may have several."""
    return list(dict.fromkeys(text for step in metrics.values() if (text := alarm_text(step))))
