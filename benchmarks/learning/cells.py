"""Trained variants: the chain of each system, and one changed key for each claim of a paper."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Start = Literal["base", "sft", "kto"]
SYSTEM = "agentic_video.system"
STEPS = {
    "videozoomer": 24,
    "framethinker": 32,
    "framemind": 24,
    "videobrain": 48,
    "eva": 24,
    "longvt": 24,
    "timesearch": 32,
    "videoo3": 24,
    "paravt": 24,
}
"""GRPO steps, of 8 questions."""
SIZE = ("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8")
"""Sizes of the laptop profiles; VideoZoomer's own has 4 questions a step, to take the shortest time."""
SYSTEMS = tuple(STEPS)
SEARCH = "+profile=search"
"""The recipes' override for the world that must be searched."""


@dataclass(frozen=True)
class Variant:
    """A way to train."""

    name: str  # ``chain``, or what is different
    system: str  # name of the recipe
    claim: str = ""  # what the paper says would happen
    overrides: tuple[str, ...] = ()  # what is different from the recipe's laptop profile
    start: Start = "sft"  # the checkpoint that GRPO starts from
    cold_start: str = ""  # a fault of the demonstrations that it starts from; by default the recipe's own
    beside: str = "chain"  # the variant that it is compared with
    # overrides by name, with which the result is measured once more (an evaluation budget of its own)
    budgets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    searched: bool = False  # whether it is trained and measured in the world that must be searched

    @property
    def world(self) -> tuple[str, ...]:
        """Overrides of its world, for whatever is built, trained or measured."""
        return (SEARCH,) if self.searched else ()

    @property
    def start_name(self) -> str:
        """Name shared by variants that start from the same checkpoints."""
        return "-".join(part for part in (self.system, "search" if self.searched else "", self.cold_start) if part)

    @property
    def built(self) -> tuple[str, ...]:
        """Overrides of the build before GRPO."""
        if not self.cold_start:
            return ()
        return (f"++agentic_video.toyworld.oracle=benchmarks.learning.oracles.{self.cold_start}_{self.system}",)

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Overrides of its evaluations, before GRPO and after it."""
        # FrameThinker's evaluation plays an episode again that fails a consistency check, and would hide a fault.
        return (f"{SYSTEM}.guard.enable=False",) if self.cold_start and self.system == "framethinker" else ()


@dataclass(frozen=True)
class Cell:
    """One GRPO run."""

    variant: Variant
    seed: int

    @property
    def name(self) -> str:
        """Name of the cell's folder."""
        return f"{self.variant.system}-{self.variant.name}-{self.seed}"


_VIEWS = tuple(
    (
        f"{frames} frames of {side}",
        (
            f"{SYSTEM}.low.frames={frames}",
            f"{SYSTEM}.high.frames={frames}",
            f"{SYSTEM}.low.height={side}",
            f"{SYSTEM}.low.width={side}",
            f"{SYSTEM}.high.height={side}",
            f"{SYSTEM}.high.width={side}",
        ),
    )
    for frames, side in ((8, 28), (6, 28), (4, 56), (2, 56))
)

_THREE_UPDATES = ("data.train_batch_size=6", "actor_rollout_ref.actor.ppo_mini_batch_size=2")
_NO_SELF_VERIFICATION = (f"{SYSTEM}.csv=False", f"{SYSTEM}.weights.completeness=0.0")

CHAINS = tuple(
    Variant("chain", name, start="kto" if name == "eva" else "sft", budgets=_VIEWS if name == "framemind" else ())
    for name in SYSTEMS
)

_SEARCH_VIEWS = tuple(view for view in _VIEWS if view[0] in ("8 frames of 28", "4 frames of 56"))
"""Those whose frames have no arrow there, but for the signpost's."""

SEARCHES = tuple(
    Variant("search", name, searched=True, beside="search", budgets=_SEARCH_VIEWS if name == "framemind" else ())
    for name in SYSTEMS
)

ABLATIONS = (
    Variant(
        "no-cold-start", "videozoomer", "VideoZoomer, Table 3: without a cold start RL finds no policy", start="base"
    ),
    Variant("no-cold-start", "videobrain", "VideoBrain, Table 3: without SFT accuracy is lost", start="base"),
    Variant(
        "no-tool-reward",
        "videozoomer",
        "VideoZoomer, section 4.3: without the tool reward calls die out",
        (f"{SYSTEM}.weights.tool=0.0",),
    ),
    # One update a step, as the laptop has it, is on-policy: every ratio is 1, and nothing is ever clipped.
    Variant("three-updates", "videozoomer", overrides=_THREE_UPDATES),
    Variant(
        "three-updates-no-clip-higher",
        "videozoomer",
        "with clip-higher rare actions can grow (used, not ablated in the paper)",
        (*_THREE_UPDATES, "actor_rollout_ref.actor.clip_ratio_high=0.2"),
        beside="three-updates",
    ),
    Variant(
        "no-dynamic-sampling",
        "videozoomer",
        "dynamic sampling replaces groups that teach nothing (used, not ablated in the paper)",
        ("algorithm.filter_groups.enable=False",),
    ),
    # The oracle looks only where it has to, and so does what is trained on it: there is nothing to reinforce.
    Variant("restless-start", "framethinker", cold_start="restless"),
    Variant(
        "restless-start-unconditional-action-reward",
        "framethinker",
        "FrameThinker, section 3.3.2: a bonus for actions whatever the answer brings calls without use",
        (f"{SYSTEM}.weights.conditional=False",),
        cold_start="restless",
        beside="restless-start",
    ),
    # The oracle's own demonstrations never fail the check, and what is trained on them hardly ever does.
    Variant("illogical-start", "framethinker", cold_start="illogical"),
    Variant(
        "illogical-start-no-ccv",
        "framethinker",
        "FrameThinker, section 3.3.2: the consistency check removes illogical calls",
        (f"{SYSTEM}.ccv.enable=False",),
        cold_start="illogical",
        beside="illogical-start",
    ),
    Variant(
        "fixed-frames",
        "framemind",
        "FrameMind, Table 2: trained on one view for all, other budgets of evaluation do worse",
        (f"{SYSTEM}.high.frames=8", f"{SYSTEM}.high.height=28", f"{SYSTEM}.high.width=28"),
        budgets=_VIEWS,
    ),
    Variant("restless-start", "videobrain", cold_start="restless"),
    Variant(
        "restless-start-no-behaviour-reward",
        "videobrain",
        "VideoBrain, Table 3: without the behaviour-aware reward calls don't follow the question's class",
        tuple(
            f"{SYSTEM}.weights.{key}=0.0"
            for key in (
                "direct_right_without",
                "adaptive_right_without",
                "adaptive_right_with",
                "active_right_with",
                "active_wrong_with",
            )
        ),
        cold_start="restless",
        beside="restless-start",
    ),
    Variant(
        "no-time-reward",
        "longvt",
        "LongVT, Charades-STA: without R_time crops find less (mIoU 21.2 in place of 27.2)",
        (f"{SYSTEM}.weights.time=0.0",),
    ),
    Variant(
        "recall",
        "longvt",
        "LongVT, Charades-STA: paid for recall crops find less (mIoU 21.6 in place of 27.2)",
        (f"{SYSTEM}.time_reward=recall",),
    ),
    Variant(
        "no-self-verification",
        "timesearch",
        "TimeSearch-R: without self-verification training collapses",
        _NO_SELF_VERIFICATION,
    ),
    # Self-verification's term also doubles a right answer's reward: here that is done without it.
    Variant(
        "accuracy-for-self-verification",
        "timesearch",
        "TimeSearch-R: the same, but a right answer earns as much as with it (not in the paper)",
        (*_NO_SELF_VERIFICATION, f"{SYSTEM}.weights.acc=1.0"),
    ),
    Variant("no-kto", "eva", "EVA, Table 2 and Figure 4: KTO and GRPO each use fewer frames than SFT", start="sft"),
)


_TRIED_IN_SEARCH = {
    "no-tool-reward": "no-tool-reward",
    "three-updates-no-clip-higher": "no-clip-higher",
    "restless-start-unconditional-action-reward": "unconditional-action-reward",
    "no-time-reward": "no-time-reward",
    "no-self-verification": "no-self-verification",
    "accuracy-for-self-verification": "accuracy-for-self-verification",
    "fixed-frames": "fixed-frames",
    "no-kto": "kto",
}
"""Ablations by name, and their names in the world that must be searched."""

# There a step makes several updates as it is, every demonstration looks, and EVA's GRPO starts from SFT.
SEARCH_ABLATIONS = tuple(
    replace(
        variant,
        name=f"search-{_TRIED_IN_SEARCH[variant.name]}",
        overrides=tuple(override for override in variant.overrides if override not in _THREE_UPDATES),
        start="kto" if variant.name == "no-kto" else variant.start,
        cold_start="",
        beside="search",
        budgets=_SEARCH_VIEWS if variant.budgets else (),
        searched=True,
    )
    for variant in ABLATIONS
    if variant.name in _TRIED_IN_SEARCH
)
"""Claims that the first world can't show: there no question can be guessed without a look, and a look never misses."""


ALL = (*CHAINS, *SEARCHES, *ABLATIONS, *SEARCH_ABLATIONS)
VARIANTS = tuple(dict.fromkeys(variant.name for variant in ALL))


def cells(systems: Sequence[str], seeds: Sequence[int], variants: Sequence[str]) -> Iterator[Cell]:
    """All runs of some systems, seed by seed: the first seed's table is whole before the second begins."""
    for seed in seeds:
        for variant in ALL:
            if variant.system in systems and variant.name in variants:
                yield Cell(variant, seed)
