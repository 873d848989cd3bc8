"""Label trajectories desirable or undesirable, for KTO (EVA, sections 3.2 and 4.1).

    agentic-video preferences --records outputs/eva-cluster/run-001 --judge http://judge:8000/v1 --out DIR
    agentic-video preferences --system eva --data rows.parquet --teacher http://model:8000/v1 --samples 4 \\
        --judge http://judge:8000/v1 --out DIR

Right answers that rest on what was seen are desirable; wrong ones, and guesses, are not. A judge reads each trajectory
and decides whether it is a guess. The same command resumes where it was killed.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.commands.teachers import TeacherArguments, run_job
from agentic_video.synthesis.jobs import JobReport
from agentic_video.synthesis.preferences import SHARE, PreferenceOptions, Rejected, label
from agentic_video.systems.registry import METHODS
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import Fraction, OpenFraction


@dataclass(frozen=True, kw_only=True)
class PreferencesArguments(TeacherArguments):
    """Trajectories, and their judge."""

    records: UseAppendAction[tuple[Path, ...]] = ()
    """file of records, or folder of a run or an evaluation; may be repeated"""
    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows to play with --teacher, instead of records or in addition; may be repeated"""
    samples: PositiveInt = 1
    """episodes of each row"""
    judge: str
    """address of the judge's server: a model that reads text"""
    judge_name: str = ""
    """name of the judge on its server, where it has several"""
    judge_max_tokens: NonNegativeInt = 16
    """most tokens of the judge's reply; 0 leaves it to the server, as reasoning models want it"""
    rejected: Rejected = "wrong-or-guess"
    """undesirable trajectories: wrong answers and guesses, or wrong guesses only as in the paper"""
    right_from: Fraction = 0.5
    """accuracy from which an answer is right: 0 or 1 for choices, from 0 to 1 for open-ended questions"""
    share: OpenFraction = SHARE
    """share of desirable trajectories"""
    size: PositiveInt | None = None
    """most trajectories; the paper has 11,000 (default: all)"""
    draw: NonNegativeInt = 0
    """seed of the choice of trajectories"""


def run(options: PreferencesArguments) -> int:
    """Label; returns the exit status, 1 when an episode couldn't be judged or a kind is missing."""
    return run_job(lambda: _label(options))


def _label(options: PreferencesArguments) -> JobReport:
    if options.overrides and not options.data:
        # Where nothing is played there is no config: such a word is a file that doesn't exist, for example.
        raise SetupError(f"not an option: {options.overrides[0]}", key=options.overrides[0])
    name, system = options.teacher_name, METHODS["preferences"]
    return label(
        PreferenceOptions(
            job=options.job,
            judge=options.server(options.judge, options.judge_name, max_tokens=options.judge_max_tokens),
            records=options.records,
            player=options.player(options.teacher, name, system=system) if options.teacher else None,
            data=options.data,
            samples=options.samples,
            right_from=options.right_from,
            rejected=options.rejected,
            share=options.share,
            size=options.size or 0,
            draw=options.draw,
        )
    )
