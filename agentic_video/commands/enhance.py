"""Have a teacher write questions about new videos, like those at which the agent fails.

    agentic-video enhance --failures mined.jsonl --videos new_videos/ --existing train.parquet \\
        --teacher http://teacher:8000/v1 --out DIR

EVA's data-enhanced GRPO (section 3.2): failures are the teacher's examples, the questions are open ended and their
answers short. ``rows.jsonl`` is what GRPO reads. The same command resumes where it was killed.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import NonNegativeInt, PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.commands.teachers import JobArguments, run_job
from agentic_video.synthesis.enhance import EnhanceOptions, enhance
from agentic_video.synthesis.questions import Rules
from agentic_video.systems.registry import METHODS
from agentic_video.utils.option_types import Amount, Fraction


@dataclass(frozen=True, kw_only=True)
class EnhanceArguments(JobArguments):
    """Questions about new videos."""

    failures: UseAppendAction[tuple[Path, ...]]
    """rows that agentic-video mine wrote; may be repeated"""
    videos: UseAppendAction[tuple[Path, ...]]
    """new videos: a folder, a video, or a text file with a path a line; may be repeated"""
    existing: UseAppendAction[tuple[Path, ...]] = ()
    """rows of the training set, whose questions and videos are skipped; may be repeated"""
    teacher: str
    """address of an OpenAI-compatible server with a model that sees images"""
    teacher_name: str = ""
    """name of the model on the server, where it has several"""
    temperature: Amount = 0.7
    """of sampling"""
    max_tokens: NonNegativeInt = 2_048
    """most tokens of a reply; 0 leaves it to the server, as reasoning models want it"""
    questions: PositiveInt = EnhanceOptions.questions
    """questions for each video"""
    examples: PositiveInt = EnhanceOptions.examples
    """failures that the teacher is shown with a video"""
    frames: PositiveInt = EnhanceOptions.frames
    """evenly spaced frames that it is shown"""
    max_pixels: PositiveInt = EnhanceOptions.max_pixels
    """most pixels of a frame"""
    max_answer_words: PositiveInt = Rules.words
    """most words of an answer"""
    near: Fraction = Rules.near
    """share of words from which two questions about a video are the same"""
    data_source: str = f"{METHODS['enhance']}-enhanced"
    """data_source of the new rows"""
    draw: NonNegativeInt = 0
    """seed of the choice of examples"""


def run(options: EnhanceArguments) -> int:
    """Enhance; returns the exit status, 1 when a video failed or no row came out."""
    return run_job(
        lambda: enhance(
            EnhanceOptions(
                job=options.job,
                teacher=options.server(options.teacher, options.teacher_name, options.temperature, options.max_tokens),
                failures=options.failures,
                videos=options.videos,
                data_source=options.data_source,
                existing=options.existing,
                questions=options.questions,
                examples=options.examples,
                frames=options.frames,
                max_pixels=options.max_pixels,
                rules=Rules(options.max_answer_words, options.near),
                draw=options.draw,
            )
        )
    )
