"""Demonstrations by template: the teacher is asked to follow one of FrameThinker's five (paper, appendix F.2).

The template of each episode is drawn, by weights. The guidance stands in the teacher's instructions only: the record
has the system's own prompt, and names the template that was asked for and the one followed.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass

from agentic_video.rollout.policy import Policy
from agentic_video.synthesis.asking import prompt
from agentic_video.synthesis.guidance import GuidedPolicy
from agentic_video.systems.prompts import question_text
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError, did_you_mean

FREE = "free"
"""No template: the answer alone decides (outcome-supervised data)."""
OPTION = "--template-mix"
_CLOCK_TIME = re.compile(r"[0-9]:[0-9]")

GUIDANCE: Mapping[str, str] = dict(line.split(": ", 1) for line in prompt("templates").splitlines())
"""Instructions to the teacher for each template."""
_TOLD = "How to go about this question: {guidance} Keep to this, and to the form described above; never mention it."


@dataclass(frozen=True)
class TemplateMix:
    """Weights of the templates."""

    weights: Mapping[str, float]  # of the templates, and of `free`; not all are 0

    def draw(self, qa: VideoQA, sample: int) -> str:
        """The template of an episode, the same each time; ``timestamp_grounded`` only where a clock time is named."""
        timed = _CLOCK_TIME.search(question_text(qa, "{letter}. {text}")) is not None
        open_to = {name: share for name, share in self.weights.items() if timed or name != "timestamp_grounded"}
        if not any(open_to.values()):
            return FREE
        chance = random.Random(f"{qa.data_source}/{qa.id}/{sample}")
        return chance.choices(list(open_to), list(open_to.values()))[0]


def read_mix(text: str) -> TemplateMix:
    """A mixture from its words, e.g. ``direct:1,single_pass:2,free:3``."""
    names, weights = (*GUIDANCE, FREE), dict[str, float]()
    for word in text.split(","):
        name, _, number = (part.strip() for part in word.partition(":"))
        if name not in names:
            raise SetupError(f"{OPTION} {name}: {did_you_mean(name, names)}there are {', '.join(names)}", key=OPTION)
        if name in weights:
            raise SetupError(f"{OPTION}: {name} is there twice", key=OPTION)
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", number):
            raise SetupError(f"{OPTION} {name}:{number}: expected a number from 0, e.g. {name}:1", key=OPTION)
        weights[name] = float(number)
    if not any(weights.values()):
        raise SetupError(f"{OPTION}: every weight is 0", key=OPTION)
    return TemplateMix(weights)


def guided_by(teacher: Policy, template: str) -> GuidedPolicy:
    """The teacher that is told to follow a template."""
    return GuidedPolicy(teacher, _TOLD.format(guidance=GUIDANCE[template]))
