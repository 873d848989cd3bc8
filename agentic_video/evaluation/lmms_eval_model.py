"""Our agents as a model of lmms-eval, found through its entry point group ``lmms_eval.models``.

    lmms_eval --model agentic_video --tasks mlvu_dev \\
        --model_args recipe=recipes/videozoomer,model=http://host:8000/v1

There are lmms-eval's two kinds of models: the chat model, which is handed a task's messages (its own choice), and with
``--force_simple`` the simple one, which is handed a text and the path of a video. lmms-eval chooses the questions and
scores what the agent answers; the episode in between is the one of training and of ``agentic-video eval``. It needs
lmms-eval (written against 0.7), which this package doesn't install, as its pins exclude hydra's; docs/evaluation.md
says how to have both.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lmms_eval.api.instance import GenerationResult, Instance, TokenCounts
from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest
from tqdm import tqdm

from agentic_video.config.compose import compose_recipe
from agentic_video.config.settings import limits_of, settings_of
from agentic_video.evaluation.ablations import without_tools
from agentic_video.evaluation.backends.make import backend_class
from agentic_video.evaluation.baseline import baseline_of
from agentic_video.evaluation.context import EvalContext, require_encoder
from agentic_video.evaluation.model import ModelOptions, engine_of, fit_images, model_spec, require_model
from agentic_video.evaluation.options import PLAIN, Variant
from agentic_video.evaluation.plan import EvalPlan, fit_limits
from agentic_video.evaluation.pool import run_pool
from agentic_video.evaluation.runner import play_question
from agentic_video.rollout.policy import EngineError
from agentic_video.systems.shown import shows_clips
from agentic_video.types.row import VideoQA
from agentic_video.utils.errors import SetupError
from agentic_video.utils.imports import make_importable
from agentic_video.video.errors import VideoError

logger = logging.getLogger(__name__)

NAME = "agentic_video"


def manifest() -> ModelManifest:
    """Paths of the two classes, for lmms-eval's registry."""
    return ModelManifest(
        NAME,
        simple_class_path=f"{__name__}.{AgenticVideo.__name__}",
        chat_class_path=f"{__name__}.{AgenticVideoChat.__name__}",
    )


class AgenticVideo(lmms):
    """An agent that watches the video of each question."""

    is_simple = True

    def __init__(
        self,
        recipe: str,
        model: str,
        model_name: str = "",
        profile: str = "cluster",
        engine: str = "auto",
        tools: bool = True,
        baseline: int = 0,
        baseline_prompt: str = PLAIN,
        concurrency: int = 32,
        temperature: float | None = None,
        overrides: str = "",
        **kwargs: Any,
    ):
        super().__init__()
        unknown = set(kwargs) - {"batch_size", "max_batch_size", "device"}
        if unknown:
            raise SetupError(
                f"--model_args {min(unknown)}: unknown; known are recipe, model, model_name, profile, engine, tools, "
                "baseline, baseline_prompt, concurrency, temperature and overrides"
            )
        options = ModelOptions(
            model,
            engine_of(model, engine),
            str(model_name),
            temperature=None if temperature is None else float(temperature),
            concurrency=int(concurrency),
        )
        require_model(options)
        make_importable(Path(recipe))
        config = compose_recipe(Path(recipe), profile, overrides.split())
        settings = settings_of(config)
        require_encoder(settings.retrieval)
        system = settings.system if _true(tools) else without_tools(settings.system)
        if int(baseline):
            asked = Variant("baseline", int(baseline), str(baseline_prompt))
            tiny = backend_class(options.engine).one_token_frames
            system = baseline_of(settings.system, asked.frames, tiny=tiny, prompt=asked.prompt)
        plan = EvalPlan(
            folder=Path(),
            settings=replace(settings, system=system),
            model=fit_images(model_spec(options, config), system.max_images, shows_clips(system)),
            limits=fit_limits(system, limits_of(config)),
            concurrency=int(concurrency),
        )
        self._runner = asyncio.Runner()
        self._context = self._runner.run(_make_context(plan))
        self._retriever = self._context.retriever()

    @property
    def batch_size(self) -> int:
        """Episodes at a time."""
        return self._context.plan.concurrency

    def generate_until(self, requests: list[Instance]) -> list[GenerationResult]:
        """The agent's answer to each question; empty where it gave none, or could not be asked."""
        return self._runner.run(self._answer_all(requests))

    async def _answer_all(self, requests: list[Instance]) -> list[GenerationResult]:
        results: list[tuple[GenerationResult, bool]] = [(GenerationResult(""), False)] * len(requests)
        with tqdm(total=len(requests), unit="episode") as bar:

            async def answer(numbered: tuple[int, Instance]) -> None:
                number, request = numbered
                results[number] = await self._answer(request)
                bar.update()

            await run_pool(enumerate(requests), answer, self.batch_size)
        answered = [result for result, _ in results]
        if failed := sum(not played for _, played in results):
            logger.warning("%d of %d questions could not be played and count as wrong", failed, len(requests))
        return answered

    async def _answer(self, request: Instance) -> tuple[GenerationResult, bool]:
        """The agent's answer, and whether the question could be played at all."""
        qa, asked = self._read(request)
        try:
            played = await play_question(self._context, self._retriever, qa)
        except (VideoError, EngineError) as error:
            # one question never stops the others
            logger.warning("%s could not be played and counts as wrong: %s", qa.id, error)
            return GenerationResult(""), False
        usage = played.usage
        counts = TokenCounts(input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)
        result = GenerationResult(played.attempts[-1].answer or "", counts)
        self.cache_hook.add_partial("generate_until", asked, result.text)
        return result, True

    def _read(self, request: Instance) -> tuple[VideoQA, tuple[Any, ...]]:
        """A request as a question, and as lmms-eval's cache names it."""
        text, options, doc_to_visual, doc_id, task, split = request.args
        visuals = doc_to_visual(self.task_dict[task][split][doc_id])
        return question(text, visuals, f"{task} {split} {doc_id}"), (text, options)

    def generate_until_multi_round(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError("these agents answer one question about one video")

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError("these agents answer in text: choose a generate_until task")

    def clean(self) -> None:
        """Let go of the model."""
        self._context.close()
        self._runner.close()
        super().clean()


class AgenticVideoChat(AgenticVideo):
    """The same as a chat model: a task's messages become the question; see :func:`question_of_messages`."""

    is_simple = False

    def _read(self, request: Instance) -> tuple[VideoQA, tuple[Any, ...]]:
        text, doc_to_messages, options, doc_id, task, split = request.args
        messages = doc_to_messages(self.task_dict[task][split][doc_id])
        return question_of_messages(messages, f"{task} {split} {doc_id}"), (text, options)


def question_of_messages(messages: Any, where: str) -> VideoQA:
    """A task's messages as a row: the texts of its user and its one video.

    System messages are left out: they say how to think and to answer, and an agent's own prompt does."""
    texts: list[str] = []
    videos: list[Any] = []
    try:
        for message in messages:
            if message["role"] == "system":
                continue
            if message["role"] != "user":
                raise SetupError(f"{where}: the task must ask one question, it gave a message of {message['role']}")
            content = message["content"]
            for part in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if part["type"] == "text":
                    texts.append(str(part["text"]))
                elif part["type"] == "video":
                    videos.append(_whole_video(part, where))
                else:
                    raise SetupError(f"{where}: the task must hand over texts and one video, it gave {part['type']}")
    except (KeyError, TypeError) as error:
        raise SetupError(f"{where}: the task's messages are not of lmms-eval's form: {error!r}") from error
    return question("\n".join(texts).strip(), videos, where)


def _whole_video(part: Mapping[str, Any], where: str) -> Any:
    if part.get("start_time") is not None or part.get("end_time") is not None:
        raise SetupError(f"{where}: the task shows a part of a video; agents are given whole videos only")
    return part["url"]


def question(text: str, visuals: Iterable[Any], where: str) -> VideoQA:
    """A question of lmms-eval as a row: its text, with whatever options it spells out, and its video."""
    videos = list(visuals)
    if len(videos) != 1 or not isinstance(videos[0], str | os.PathLike):
        kinds = [type(visual).__name__ for visual in videos]
        raise SetupError(f"{where}: the task must hand over one path of a video, it gave {kinds}")
    # The task knows the right answer; the agent's row needs one that isn't empty.
    return VideoQA(id=where, video=str(videos[0]), question=text, answer="-", answer_type="open_ended")


async def _make_context(plan: EvalPlan) -> EvalContext:
    return EvalContext(plan)


def _true(value: Any) -> bool:
    return str(value).lower() not in ("false", "0", "no")
