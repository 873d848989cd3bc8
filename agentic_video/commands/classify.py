"""Sort questions into VideoBrain's classes, and draw the SFT and RL sets by them.

    agentic-video classify --data rows.parquet --base http://base:8000/v1 --teacher http://teacher:8000/v1 --out DIR
    agentic-video classify --base-results eval/base --teacher-results eval/teacher --out DIR

The base model answers from the overview alone, the teacher may use the tools; a question's class follows from which of
them is right, and whether the teacher used tools (VideoBrain, section 3.2). The same command resumes where it was
killed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, get_args

from pydantic import AfterValidator, NonNegativeInt, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.commands.teachers import TeacherArguments, run_job
from agentic_video.synthesis.classes import RL_SHARES, RL_SIZE, SFT_SHARES, SFT_SIZE, Quota, SetOptions, Slip
from agentic_video.synthesis.classify import ClassifyOptions, classify
from agentic_video.systems.registry import METHODS
from agentic_video.types.row import QuestionClass
from agentic_video.utils.option_types import Fraction, ModelName


def read_shares(text: str) -> dict[QuestionClass, float]:
    """Read ``CLASS=SHARE,...``; the shares add up to 1."""
    classes: tuple[QuestionClass, ...] = get_args(QuestionClass)
    pairs = [pair.partition("=") for pair in text.split(",")]
    found = {kind: float(value) for name, _, value in pairs for kind in classes if kind == name.strip()}
    if len(found) != len(pairs) or not all(0 <= share <= 1 for share in found.values()):
        raise ValueError(f"expected each of {', '.join(classes)} at most once, as CLASS=SHARE")
    if abs(sum(found.values()) - 1) > 1e-6:
        raise ValueError(f"the shares add up to {sum(found.values()):g}, not to 1")
    return found


def _checked_shares(text: str) -> str:
    read_shares(text)
    return text


def _text_of(shares: Mapping[QuestionClass, float]) -> str:
    return ",".join(f"{kind}={share:g}" for kind, share in shares.items())


Shares = Annotated[str, AfterValidator(_checked_shares)]
SFT_TEXT, RL_TEXT = _text_of(SFT_SHARES), _text_of(RL_SHARES)


@dataclass(frozen=True, kw_only=True)
class ClassifyArguments(TeacherArguments):
    """Rows, the answers of both models, and the sets."""

    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows; may be repeated (default: the questions of --base-results)"""
    base: ModelName = ""
    """address of the base model's server, or folder of its checkpoint"""
    base_name: str = ""
    """name of the base model on its server, where it has several"""
    base_frames: PositiveInt | None = None
    """show the base model N uniform frames in the plain baseline's way (default: the system without its
    tools)"""
    base_results: tuple[Path, ...] = ()
    """evaluations of the base model, instead of --base; each is a sample"""
    teacher_results: tuple[Path, ...] = ()
    """evaluations of the teacher with tools, instead of --teacher; each is a sample"""
    samples: PositiveInt = 1
    """answers of each model that is played; the majority counts; several need a temperature above 0"""
    right_from: Fraction = 1.0
    """grade from which an answer is right"""
    slip: Slip = "drop"
    """fate of a question that the base model gets right and the teacher, without tools, wrong"""
    sft_size: NonNegativeInt = SFT_SIZE
    """rows of the SFT set"""
    sft_shares: Shares = SFT_TEXT
    """shares of the classes in the SFT set"""
    sft_wrong: bool = False
    """where the teacher was never right, learn from a wrong trajectory"""
    rl_size: NonNegativeInt = RL_SIZE
    """rows of the RL set"""
    rl_shares: Shares = RL_TEXT
    """shares of the classes in the RL set"""
    fill: bool = False
    """where a class is scarce, break the shares rather than make both sets smaller"""
    draw: NonNegativeInt = 0
    """seed of the choice of rows"""


def run(options: ClassifyArguments) -> int:
    """Classify; returns the exit status, 1 when a row isn't classified or a set is empty."""
    return run_job(lambda: classify(_job(options)))


def _job(options: ClassifyArguments) -> ClassifyOptions:
    base, teacher, system = options.base, options.teacher, METHODS["classify"]
    return ClassifyOptions(
        job=options.job,
        data=options.data,
        base=options.player(base, options.base_name, "--base", system) if base else None,
        base_results=options.base_results,
        base_frames=options.base_frames,
        teacher=options.player(teacher, options.teacher_name, system=system) if teacher else None,
        teacher_results=options.teacher_results,
        samples=options.samples,
        sets=SetOptions(
            right_from=options.right_from,
            slip=options.slip,
            sft=Quota(options.sft_size, read_shares(options.sft_shares)),
            rl=Quota(options.rl_size, read_shares(options.rl_shares)),
            fill=options.fill,
            wrong_too=options.sft_wrong,
            seed=options.draw,
        ),
    )
