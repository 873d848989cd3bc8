"""Episodes through stock verl's agent-loop worker and through this package's: everything is real but the model.

Both sides play the same VideoZoomer episodes on the same video from the same frame store. ``stock`` hands images to its
server each turn and float32 patches to TransferQueue, as verl's own worker does; ``references`` is this package's way.
"""

import asyncio
import json
import pickle
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import av
import numpy as np
import ray
from omegaconf import DictConfig, OmegaConf
from PIL import Image
from transformers import Qwen2VLImageProcessor
from verl.experimental.agent_loop import agent_loop as verl_agent_loop
from verl.workers.rollout.replica import TokenOutput

from agentic_video.config.compose import compose_recipe
from agentic_video.config.overrides import quoted
from agentic_video.rollout.tokens import TokenSequence
from agentic_video.training.inputs.references import SequenceImages
from agentic_video.training.loop.agent_loop import AGENT_NAME, VideoAgentLoop
from agentic_video.training.loop.agent_loop_manager import VideoAgentLoopWorker
from agentic_video.types.frame import ImageRef
from agentic_video.types.message import frames_of
from agentic_video.types.row import VideoQA
from benchmarks.gpu.shapes import write_checkpoint

REPOSITORY = Path(__file__).resolve().parents[2]
Side = Literal["stock", "references"]
SIDES: tuple[Side, ...] = ("stock", "references")
STOCK_AGENT = "stock_video_agent"
SIZE = (896, 448)
"""Of the video in pixels; VideoZoomer shows it at 448 x 224."""
ZOOM_FRAMES = 16
TICK = 0.002
"""Seconds between two looks at an event loop's clock."""


def make_video(path: Path, minutes: float = 10.0, fps: int = 8) -> Path:
    """Make a video whose every frame differs, a square that wanders over noise, unless the file is there."""
    if path.exists():
        return path
    noise = np.random.default_rng(0).integers(0, 256, (SIZE[1], SIZE[0], 3), np.uint8)
    making = path.with_suffix(".making.mp4")
    with av.open(str(making), "w") as container:
        stream = container.add_stream("libx264", fps, options={"preset": "ultrafast", "crf": "35", "g": "80"})
        stream.width, stream.height, stream.pix_fmt = *SIZE, "yuv420p"
        for number in range(int(minutes * 60 * fps)):
            picture = noise // 4
            across, down = (number * 7) % (SIZE[0] - 64), (number * 3) % (SIZE[1] - 64)
            picture[down : down + 64, across : across + 64] = number % 256
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    making.rename(path)
    return path


def make_model(folder: Path) -> Path:
    """Tokenizer, processor and config of Qwen2.5-VL-7B's sizes, without weights."""
    return write_checkpoint(folder / "qwen2.5-vl-7b", "qwen2.5-vl-7b", weights=False)


@dataclass(frozen=True)
class Load:
    """Size of the played workload."""

    questions: int = 1  # how many
    rollouts: int = 1  # of each question
    overview: int = 64  # frames of the first view
    zooms: int = 4  # calls of 16 frames that each rollout makes, each into another stretch
    think: float = 0.0  # seconds that the stand-in for the model takes for a turn

    @property
    def frames(self) -> int:
        """Of one trajectory."""
        return self.overview + self.zooms * ZOOM_FRAMES


def configured(model: Path, load: Load, side: Side, more: Sequence[str] = ()) -> DictConfig:
    """VideoZoomer's cluster config for a load, resolved."""
    overrides = [
        f"actor_rollout_ref.model.path={quoted(model)}",
        "data.train_files=none",
        "data.val_files=none",
        f"actor_rollout_ref.rollout.n={load.rollouts}",
        f"actor_rollout_ref.rollout.name={'sglang' if side == 'stock' else 'vllm'}",  # the former gets pixels
        f"agentic_video.system.overview_max_frames={load.overview}",
        *more,
    ]
    config = compose_recipe(REPOSITORY / "recipes" / "videozoomer", "cluster", overrides)
    return DictConfig(OmegaConf.to_container(config, resolve=True))


class StockAgentLoop(VideoAgentLoop):
    """The same episodes, with their images as verl's own agent loops leave them."""

    def _images(self, sequences: Sequence[TokenSequence]) -> list[SequenceImages]:
        self._frames = [frames_of(sequence.visuals) for sequence in sequences]
        return super()._images(sequences)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> Any:
        """See :class:`VideoAgentLoop`."""
        output: Any = await super().run(sampling_params, **row)
        (frames,) = self._frames
        output.multi_modal_data = {"images": [Image.fromarray(frame.image) for frame in frames]}
        return output


verl_agent_loop._agent_loop_registry[STOCK_AGENT] = {"_target_": f"{__name__}.StockAgentLoop"}


@dataclass
class Counts:
    """Work of one side."""

    processed: int = 0  # images that a processor was given in this process
    # milliseconds on the event loop for each turn that was handed to a server
    submitted: list[float] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)  # bytes of images handed to a server, turn by turn
    put: int = 0  # bytes written into TransferQueue's sockets
    got: int = 0  # bytes read from them


def image_bytes(image_data: Sequence[Any] | None) -> int:
    """Bytes of the images in a request."""
    total = 0
    for image in image_data or ():
        total += len(pickle.dumps(image)) if isinstance(image, ImageRef) else int(np.asarray(image).nbytes)
    return total


class Server:
    """Stand-in for an engine: an actor that returns the given reply."""

    async def generate(self, reply: list[int], seconds: float, **request: Any) -> TokenOutput:
        """A turn."""
        await asyncio.sleep(seconds)
        return TokenOutput(token_ids=reply, log_probs=[-1.0] * len(reply), extra_fields={"global_steps": 1})


class Client:
    """verl's client of its servers, with one stand-in as server: zooms, then answers."""

    def __init__(self, server: Any, tokenizer: Any, load: Load, duration: float, counts: Counts):
        self._server, self._tokenizer, self._load, self._duration = server, tokenizer, load, duration
        self._turns: dict[str, int] = {}
        self._asked: list[Any] = []
        self.counts = counts

    def reply(self, request_id: str, turn: int) -> list[int]:
        """Ids of an episode's turn; each rollout looks at stretches of its own."""
        if turn >= self._load.zooms:
            text = "<think>seen</think><answer>A</answer>"
        else:
            rollout = int(request_id.split(":")[1])
            number = rollout * self._load.zooms + turn
            start = 3.0 + (number * 9.5) % (self._duration - 20)
            call = json.dumps({"segment": [round(start, 2), round(start + 8.0, 2)], "fps": 2})
            text = f"<think>look</think><video_zoom>{call}</video_zoom>"
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    async def generate(self, request_id: str, image_data: Any = None, **request: Any) -> TokenOutput:
        """A turn of an episode."""
        turn = self._turns[request_id] = self._turns.get(request_id, -1) + 1
        reply = self.reply(request_id, turn)
        started = time.perf_counter()
        answer = self._server.generate.remote(reply, self._load.think, image_data=image_data, **request)
        self.counts.submitted.append(1e3 * (time.perf_counter() - started))
        self._asked.append(image_data)
        output: TokenOutput = await answer
        return output

    def finish(self) -> None:
        """Count bytes, which would take time while episodes run."""
        self.counts.sent += [image_bytes(images) for images in self._asked]
        self._asked.clear()


def counting(counts: Counts) -> Callable[[], None]:
    """Count what the image processor and TransferQueue's sockets of this process do, until the result is called."""
    from transfer_queue.utils.zmq_utils import ZMQMessage

    process, serialize, deserialize = Qwen2VLImageProcessor.__call__, ZMQMessage.serialize, ZMQMessage.deserialize

    def counted_process(self: Any, images: Any, *given: Any, **more: Any) -> Any:
        counts.processed += len(images)
        return process(self, images, *given, **more)

    def counted_serialize(self: Any) -> Any:
        frames = serialize(self)
        counts.put += sum(memoryview(frame).nbytes for frame in frames)
        return frames

    def counted_deserialize(cls: Any, frames: Any) -> Any:
        counts.got += sum(
            len(frame.buffer) if hasattr(frame, "buffer") else memoryview(frame).nbytes for frame in frames
        )
        return deserialize.__func__(cls, frames)

    processor: Any = Qwen2VLImageProcessor
    message: Any = ZMQMessage
    processor.__call__ = counted_process
    message.serialize, message.deserialize = counted_serialize, classmethod(counted_deserialize)

    def stop() -> None:
        processor.__call__ = process
        message.serialize, message.deserialize = serialize, deserialize

    return stop


class Heartbeat:
    """Delays of a task that wants to run every two milliseconds; ``stalls`` holds them in milliseconds."""

    def __init__(self) -> None:
        self.stalls: list[float] = []

    async def __aenter__(self) -> "Heartbeat":
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            started = time.perf_counter()
            await asyncio.sleep(TICK)
            self.stalls.append(1e3 * max(0.0, time.perf_counter() - started - TICK))

    def per_second(self, share: float) -> float:
        """A quantile of the longest stall within each second, in milliseconds."""
        longest: list[float] = []
        elapsed = worst = 0.0
        for stall in self.stalls:
            elapsed += stall + 1e3 * TICK
            worst = max(worst, stall)
            if elapsed >= 1e3:
                longest.append(worst)
                elapsed = worst = 0.0
        return float(np.quantile([*longest, worst], share))


class Worker:
    """An agent-loop worker of one side in this process."""

    def __init__(
        self, side: Side, model: Path, video: Path, load: Load, server: Any = None, overrides: Sequence[str] = ()
    ):
        self.side, self.video, self.load, self.counts = side, video, load, Counts()
        kind: Any = VideoAgentLoopWorker if side == "references" else VideoAgentLoopWorker.__base__
        self.config = configured(model, load, side, overrides)
        self.worker = kind(self.config, llm_client=None)
        with av.open(str(video)) as container:
            duration = float(container.duration or 0) / av.time_base
        server = server or ray.remote(Server).options(num_cpus=0, max_concurrency=1000).remote()
        self.client = Client(server, self.worker.tokenizer, load, duration, self.counts)
        self.worker.llm_client = self.client

    def row(self, question: int) -> dict[str, Any]:
        """A row of a data file with verl's fields."""
        qa = VideoQA(
            id=f"q{question}",
            video=str(self.video),
            question=f"What happens at {question}?",
            answer="A",
            options=("a", "b"),
        )
        return {"video_qa": qa.to_row(), "index": question, "global_steps": 1, "raw_prompt": [], "data_source": "bench"}

    def episode(self, question: int, session: int, uid: str) -> Coroutine[Any, Any, Any]:
        """One rollout of a question about the worker's current video; ``uid`` is the group's."""
        told = {"step": 1, "sample_index": question, "rollout_n": session, "validate": False}
        agent = AGENT_NAME if self.side == "references" else STOCK_AGENT
        row = {**self.row(question), "uid": uid, "session_id": session, "agent_name": agent}
        return self.worker._run_agent_loop({"temperature": 1.0, "logprobs": True}, told, trace=False, **row)

    async def play(self, questions: Sequence[int]) -> list[str]:
        """Play all rollouts of some questions at once; the keys of what went into TransferQueue."""
        pairs = [(question, session) for question in questions for session in range(self.load.rollouts)]
        await asyncio.gather(*(self.episode(question, session, f"u{question}") for question, session in pairs))
        return [f"u{question}_{session}_0" for question, session in pairs]
