"""What a recipe's script is asked to do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Stage = Literal["grpo", "sft", "kto", "rft"]
"""``rft``: SFT once more, after GRPO, with its own good rollouts."""
Profile = Literal["laptop", "cluster", "rehearsal", "single", "four"]
"""``laptop``: a small job on the synthetic world, on CPUs. ``cluster``: the paper's run, on GPUs. The others are the
cluster's with a few changes: ``rehearsal`` on CPUs and two Ray nodes, on the synthetic world; ``single`` on one GPU;
``four`` on four."""
ChangedData = Literal["refuse", "new", "continue"]
"""Fate of an unfinished run whose files hold something else by now: it is refused, another run is begun, or it
goes on with the new content, from the first row of them."""
CHANGED: frozenset[Profile] = frozenset({"rehearsal", "single", "four"})
"""The profiles that are ``cluster.yaml`` with the changes of ``profile/<name>.yaml`` beside it."""
ON_TOYWORLD: frozenset[Profile] = frozenset({"laptop", "rehearsal"})
"""The profiles whose data and model are made on the spot where none are named, and which need no GPU."""


@dataclass(frozen=True)
class LaunchOptions:
    """One training job, as its command asks for it.

    Attributes:
        recipe: Folder of the recipe, absolute.
        stage: What is trained.
        profile: The profile that is asked for; None leaves the choice to what the machine has.
        submit: Whether it runs as a Ray job on the cluster at ``RAY_ADDRESS``.
        dry_run: Whether its command is only printed.
        overrides: Hydra overrides for verl.
        changed_data: What becomes of the unfinished run of the same command, where its files hold something else now:
            ``refuse``, ``new`` for another run, or ``continue``.
    """

    recipe: Path
    stage: Stage = "grpo"
    profile: Profile | None = None
    submit: bool = False
    dry_run: bool = False
    overrides: tuple[str, ...] = ()
    changed_data: ChangedData = "refuse"

    @property
    def title(self) -> str:
        """The recipe, and the stage where it isn't GRPO; run folders begin with it."""
        return self.recipe.name if self.stage == "grpo" else f"{self.recipe.name}-{self.stage}"
