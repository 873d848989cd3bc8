"""Demonstrations of a teacher: it plays a system's episodes over rows, and what verifies is kept, ready for SFT."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from tyro.conf import UseAppendAction

from agentic_video.evaluation.backends.base import Backend, usage_of
from agentic_video.evaluation.backends.chat import ChatBackend
from agentic_video.evaluation.context import EvalContext
from agentic_video.evaluation.model import ModelSpec
from agentic_video.evaluation.options import check_files
from agentic_video.graders.replies import spoken
from agentic_video.rollout.chat_policy import ChatPolicy, Usage
from agentic_video.rollout.episode import play
from agentic_video.rollout.policy import EngineError, Policy
from agentic_video.synthesis.asking import ask_player, chat_config, instructed, prompt, transcript
from agentic_video.synthesis.inputs import read_questions
from agentic_video.synthesis.jobs import KEPT, JobReport, Outcome, SynthesisJob, open_job
from agentic_video.synthesis.teachers import Sample, Teacher, TeacherOptions, prepare, samples_of
from agentic_video.synthesis.team import (
    WORKFLOWS,
    Experience,
    ExperienceBank,
    TeamOptions,
    TeamPolicy,
    summarise,
    workflow_of,
)
from agentic_video.synthesis.template_mix import FREE, OPTION, TemplateMix, guided_by, read_mix
from agentic_video.synthesis.templates import template_of
from agentic_video.synthesis.verify import taught_by_team, verify
from agentic_video.systems.needs import check_needs
from agentic_video.systems.prompts import question_text
from agentic_video.systems.registry import METHODS
from agentic_video.types.record import Record
from agentic_video.types.row import INTERVAL_TYPES, VideoQA
from agentic_video.types.trajectory import EndReason, Trajectory
from agentic_video.utils.errors import SetupError
from agentic_video.utils.option_types import Fraction, ModelName


@dataclass(frozen=True, kw_only=True)
class DistillOptions(TeacherOptions, TeamOptions):
    """Rows, their teacher, and which demonstrations are kept."""

    teacher: ModelName = ""
    """address of an OpenAI-compatible server (http://host:8000/v1), or folder of a checkpoint (default: where there is
    no GPU, a scripted one that knows the answers)"""
    data: UseAppendAction[tuple[Path, ...]] = ()
    """parquet or jsonl file of rows; may be repeated (default with the scripted teacher: the synthetic rows)"""
    samples: PositiveInt = 1
    """episodes of each question"""
    min_acc: Fraction = 1.0
    """an answer graded at least this is right; lower it for open-ended rows that are graded by degrees"""
    critic: str = ""
    """server of a second model that rejects illogical paths"""
    critic_model: str = ""
    """name of the critic on its server, where it has several"""
    template_mix: str = ""
    """NAME:WEIGHT,..., for the system that has reasoning templates: how often the teacher is asked to follow each
    (direct, single_pass, timestamp_grounded, hierarchical, multi_interval), or none (free); an episode that follows
    another one isn't kept (default: it plays freely)"""
    single_teacher: bool = False
    """without thinker and experience bank, for the system that is taught by a team"""


def distill(options: DistillOptions) -> JobReport:
    """Have a teacher play and keep what verifies; complete when every episode was played."""
    check_files(options.data, "--data")
    templates = read_mix(options.template_mix) if options.template_mix else None
    teacher = prepare(options, options.teacher, options.teacher_name)
    system = teacher.system
    teacher.check_samples(options.samples)
    team = options if taught_by_team(system) and not options.single_teacher else None
    if templates is not None and system.name != METHODS["templates"]:
        raise SetupError(f"{OPTION}: the templates are {METHODS['templates']}'s, not {system.name}'s", key=OPTION)
    if team is not None and teacher.spec.engine != "chat":
        raise SetupError(
            f"{system.name}'s teachers need a server: serve the checkpoint (vllm serve) and name its address "
            "with --teacher, or set --single-teacher",
            key="--teacher",
        )
    questions = read_questions(options.data).first(options.limit)
    rows = questions.rows
    if not teacher.settings.judge.base_url:
        check_needs(", ".join(map(str, options.data)), rows, system, {"judge"}, demonstrations=True)
    critic = critic_backend(options, teacher) if options.critic else None
    _warn_of_intervals(rows, options.min_acc)
    settings = {
        **teacher.identity(),
        "data": [str(path.resolve()) for path in options.data],
        "samples": options.samples,
        "min_acc": options.min_acc,
        "critic": [options.critic, options.critic_model],
        "team": {field.name: getattr(team, field.name) for field in fields(TeamOptions)} if team else None,
        # folders of earlier versions lack the key
        **({"templates": dict(templates.weights)} if templates else {}),
    }
    total = len(rows) * options.samples
    with open_job(options, settings, "distillation", total) as job:
        asyncio.run(_play(job, teacher, rows, options, critic, team, templates))
        title = f"{system.name} distilled from {teacher.name}"
        return JobReport(write_outputs(job, title, questions.numbers), not job.failures)


def _warn_of_intervals(rows: Sequence[VideoQA], least_acc: float) -> None:
    count = sum(qa.answer_type in INTERVAL_TYPES for qa in rows)
    if count and least_acc >= 1:
        print(
            f"{count} of {len(rows)} rows ask for an interval, whose accuracy is its overlap with the right one: "
            f"--min-acc {least_acc:g} keeps exact ones only, --min-acc 0.5 those that lie on it by half",
            file=sys.stderr,
        )


def critic_backend(options: DistillOptions, teacher: Teacher) -> Backend:
    """The critic: a second model behind a server."""
    chat = chat_config(options, options.critic, options.critic_model, "--critic", "--critic-model")
    return ChatBackend(ModelSpec("chat", options.critic, chat=chat), teacher.system.size_factor)


def write_outputs(job: SynthesisJob, title: str, more: Mapping[str, int] | None = None) -> str:
    """Write ``kept.jsonl``, ``rejected.jsonl`` and ``report.json`` with further numbers; returns the table."""

    def with_reason(outcome: Outcome) -> dict[str, Any]:
        record: dict[str, Any] = outcome.result
        return {**record, "provenance": {**record["provenance"], "rejected": outcome.verdict}}

    kept = (outcome for _, outcome in job.results(kept=True) if outcome.result is not None)
    rejected = (outcome for _, outcome in job.results(kept=False) if outcome.result is not None)
    path = job.write_rows("kept.jsonl", (outcome.result for outcome in kept))
    job.write_rows("rejected.jsonl", map(with_reason, rejected))
    questions = {key[:2] for key in job.finished(kept=True)}
    numbers = {"questions_with_a_kept_episode": len(questions), **(more or {})}
    return f"{job.write_report(title, numbers)}\nkept episodes: {path}"


async def _play(
    job: SynthesisJob,
    teacher: Teacher,
    rows: Sequence[VideoQA],
    options: DistillOptions,
    critic: Backend | None,
    team: TeamOptions | None,
    templates: TemplateMix | None,
) -> None:
    with closing(teacher.context(job.folder, job.options.concurrency)) as context:
        distiller = Distiller(teacher, context, options, critic, team, templates)
        # Without a bank there is no reason to wait for a round's last episode.
        size = team.bank_round if team and team.experiences > 0 else max(1, len(rows))
        for start in range(0, len(rows), size):
            items = samples_of(rows[start : start + size], options.samples)
            finished = await job.play(items, distiller.play)
            if team and team.experiences > 0:
                outcomes = map(job.outcome, finished)
                distiller.learn([Record.from_dict(outcome.result) for outcome in outcomes if outcome.kept])


class Distiller:
    """Plays and checks one episode after the other; ``learn`` adds a round's kept records to the experience bank."""

    def __init__(
        self,
        teacher: Teacher,
        context: EvalContext,
        options: DistillOptions,
        critic: Backend | None,
        team: TeamOptions | None,
        templates: TemplateMix | None,
    ):
        self._teacher, self._context, self._critic, self._team = teacher, context, critic, team
        self._min_acc, self._templates = options.min_acc, templates
        self._backends = teacher.backends(context, options.samples)
        self._retriever = context.retriever()
        self._bank, self._experiences = ExperienceBank(), list[Experience]()

    def learn(self, kept: Sequence[Record]) -> None:
        if kept:
            self._experiences += map(Experience.of, kept)
            self._bank = ExperienceBank(self._experiences)

    async def play(self, item: Sample) -> Outcome:
        """Play and check one episode."""
        (qa, sample), system = item, self._teacher.system
        similar = self._bank.similar(qa, self._team.experiences) if self._team else []
        policy = self._policy(qa, sample, similar)
        template = self._templates.draw(qa, sample) if self._templates else FREE
        player = policy if template == FREE else guided_by(policy, template)
        trajectory = await play(system, player, qa, self._context.source, self._retriever, rollout_index=sample)
        if trajectory.end is EndReason.ENGINE_ERROR:
            raise EngineError(trajectory.error)
        usage = policy.usage if isinstance(policy, TeamPolicy) else usage_of(policy)
        provenance: dict[str, Any] = {"source": "distillation", "teacher": self._teacher.name, "sample": sample}
        if isinstance(policy, TeamPolicy):
            notes = policy.notes
            provenance["team"] = {
                "reviews": notes.reviews,
                "objections": notes.objections,
                "unclear_reviews": notes.unclear,
                "experiences": [[experience.qa.data_source, experience.qa.id] for experience in similar],
                "workflow": workflow_of(qa, sample),
            }
        verdict = await verify(system, trajectory, qa, self._context.graders, self._min_acc)
        reason = verdict.reason
        if self._templates is not None:
            followed = template_of(trajectory)
            provenance["template"] = {"asked": template, "followed": followed}
            if reason == KEPT and template not in (FREE, followed):
                reason = f"template: {followed}, not {template}"
        if reason == KEPT and self._critic is not None:
            reason, asked = await self._criticise(trajectory, qa)
            usage += asked
        if reason == KEPT and self._team is not None and self._team.experiences > 0:
            backend = self._backends[sample]
            summary, asked = await summarise(backend, system, self._teacher.limits, trajectory, qa)
            usage += asked
            provenance["team"]["summary"] = summary
        return Outcome(reason, Record(qa, trajectory, verdict.rewards, provenance).to_dict(), usage)

    def _policy(self, qa: VideoQA, sample: int, similar: Sequence[Experience]) -> Policy:
        backend, limits, system = self._backends[sample], self._teacher.limits, self._teacher.system
        policy = backend.policy(system, limits)
        if self._team is None:
            return policy
        assert isinstance(policy, ChatPolicy)
        workflow = WORKFLOWS[workflow_of(qa, sample)]
        return TeamPolicy(policy, backend, system, limits, similar, workflow, self._team.thinker_rounds)

    async def _criticise(self, trajectory: Trajectory, qa: VideoQA) -> tuple[str, Usage]:
        """The critic's verdict on a verified path: only a clear yes keeps it."""
        assert self._critic is not None
        material = {
            "question": question_text(qa, "{letter}. {text}"),
            "answer": qa.answer,
            "turns": transcript(trajectory.turns),
        }
        messages = instructed(prompt("critic"), material)
        reply, usage = await ask_player(self._critic, self._teacher.system, self._teacher.limits, messages)
        return {True: KEPT, False: "critic: no", None: "critic: unclear"}[read_yes_no(reply)], usage


def read_yes_no(reply: str) -> bool | None:
    """The meaning of a reply that is one of the two words and nothing else."""
    return {"yes": True, "no": False}.get(spoken(reply).lower().removesuffix("."))
