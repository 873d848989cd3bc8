"""Golden episodes: what every system does with scripted and mutated turns, and what they earn.

``python -m tests.golden.episodes`` plays all of them and writes their digests to ``episodes.txt``: to be done where a
change of behaviour is meant. With a file's name (``OUT.jsonl.gz``) it writes them in full, to compare two versions.
"""

import asyncio
import gzip
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import Qwen2VLImageProcessor
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

from agentic_video.evaluation.ablations import without_tools
from agentic_video.graders.base import Graders
from agentic_video.graders.endpoint import EndpointError
from agentic_video.graders.judge import Judge, JudgeConfig
from agentic_video.graders.verifier import Verifier, VerifierConfig
from agentic_video.rollout.episode import play, play_attempts
from agentic_video.rollout.policy import ScriptedPolicy
from agentic_video.rollout.replay import ReplayError, replay
from agentic_video.rollout.tokens import ChatFormat, TokenLimits
from agentic_video.synthesis.verify import verify
from agentic_video.systems.eva import Eva
from agentic_video.systems.framemind import FrameMind
from agentic_video.systems.framethinker import FrameThinker
from agentic_video.systems.longvt import LongVT, LongVTWeights
from agentic_video.systems.paravt import ParaVT
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.toyworld.model import build_tokenizer
from agentic_video.types.frame import Frame, Origin
from agentic_video.types.message import AsideRequest, text_of
from agentic_video.types.row import Interval, VideoQA
from agentic_video.video.errors import VideoError
from agentic_video.video.index import VideoInfo
from agentic_video.video.source import DrawnSource
from tests.families.processors import processor_of

EPISODES = 2_000
"""For each system."""
DIGESTS = Path(__file__).with_name("episodes.txt")
OPTIONS = ("red", "green", "blue", "grey")
FPS, DURATION = 10.0, 60.0


class BlankSource(DrawnSource):
    """Frames of a video that isn't there: of the right number, time and size, and all the same."""

    keyframe_interval = 50

    def __init__(self, duration: float, width: int, height: int):
        self.info = VideoInfo(
            path="memory",
            fps=FPS,
            num_frames=int(duration * FPS),
            duration=duration,
            width=width,
            height=height,
            rotation=0,
            variable_frame_rate=False,
            codec="none",
            pixel_format="rgb24",
            start_time=0.0,
        )

    def facts(self, path: str) -> VideoInfo:
        return self.info

    def draw(self, path: str, indices: Sequence[int], size: tuple[int, int] | None) -> list[Frame]:
        if any(not 0 <= index < self.info.num_frames for index in indices):
            raise VideoError(path, "out_of_range", "beyond the video")
        width, height = size or (self.info.width, self.info.height)
        picture = np.broadcast_to(np.uint8(7), (height, width, 3))
        return [Frame.stored(index, index / FPS, picture, Origin(path, index, size), str(index)) for index in indices]

    def indices_at(self, path: str, times: Sequence[float]) -> list[int]:
        return [min(round(time * FPS), self.info.num_frames - 1) for time in times]


class HashRetriever:
    """Similarities that depend on nothing but the frame and the text."""

    async def asimilarities(self, path: str, indices: Sequence[int], prompt: str) -> list[float]:
        return [digest(prompt, index) for index in indices]

    async def acompare(self, path: str, indices: Sequence[int], prompt: str) -> tuple[np.ndarray, np.ndarray]:
        rows = np.array([[digest(index, axis) for axis in range(4)] for index in indices], np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return np.array(await self.asimilarities(path, indices, prompt), np.float32), rows @ rows.T


def digest(*parts: object) -> float:
    """From 0 to 1, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=4).digest()) / 2**32


class HashJudge(Judge):
    """Grades by a hash; fails now and then."""

    def __init__(self) -> None:
        super().__init__(JudgeConfig())

    async def grade(self, question: str, reference: str, candidate: str, scale: Any = "binary") -> float:
        value = digest(question, reference, candidate)
        if value < 0.05:
            raise EndpointError("no verdict")
        if scale == "half":
            return round(2 * value) / 2
        return round(value, 1) if scale == "unit" else float(value > 0.5)


class HashVerifier(Verifier):
    """Answers by a hash."""

    def __init__(self) -> None:
        super().__init__(VerifierConfig())

    async def ask(self, prompt: str, frames: Sequence[Frame]) -> str:
        return f"<answer>{'ABCD'[int(4 * digest(prompt, [frame.index for frame in frames]))]}</answer>"


def number(rng: random.Random) -> str:
    return rng.choice(
        [
            str(rng.randint(0, 60)),
            f"{rng.uniform(-5, 70):.2f}",
            str(rng.randint(0, 650)),
            "NaN",
            "1e999",
            "true",
            "null",
            '"2"',
            "-1",
            "9" * 30,
            "0.5",
            "2",
            "4",
        ]
    )


def zoom(rng: random.Random) -> str:
    start = rng.randint(0, 55)
    end, fps = start + rng.randint(1, 8), rng.choice([1, 2, 4])
    return f'<video_zoom>{{"segment": [{start}, {end}], "fps": {fps}}}</video_zoom>'


def wild_zoom(rng: random.Random) -> str:
    return f'<video_zoom>{{"segment": [{number(rng)}, {number(rng)}], "fps": {number(rng)}}}</video_zoom>'


def choose(rng: random.Random) -> str:
    start, end = sorted(rng.sample(range(0, 600), 2))
    thought = f"from {start} to {end}" if rng.random() < 0.8 else "somewhere"
    return f"<think>{thought}</think><action>choose frames between {start} and {end}</action>"


def wild_choose(rng: random.Random) -> str:
    what = rng.choice(
        ["choose frames between {} and {}", "get frame number at time {}:{}", "output answer: {} {}", "{}{}"]
    )
    return f"<think>{number(rng)} {number(rng)}</think><action>{what.format(number(rng), number(rng))}</action>"


def lookup(rng: random.Random) -> str:
    return f"<think>when</think><action>get frame number at time 00:{rng.randint(0, 59):02d}</action>"


def mind(rng: random.Random) -> str:
    calls = "".join(
        rng.choice(
            [
                f'<tool_call>{{"name": "FrameAt", "arguments": {{"t": {rng.randint(0, 60)}}}}}</tool_call>',
                f'<tool_call>{{"name": "VideoClip", "arguments": {{"t_start": {rng.randint(0, 30)}, '
                f'"t_end": {rng.randint(31, 60)}}}}}</tool_call>',
            ]
        )
        for _ in range(rng.randint(0, 4))
    )
    return f"<think>a</think>{calls}<turn_sum>b</turn_sum>"


def wild_mind(rng: random.Random) -> str:
    name = rng.choice(["FrameAt", "VideoClip", "refused", "Other"])
    arguments = rng.choice(
        [f'{{"t": {number(rng)}}}', f'{{"t_start": {number(rng)}, "t_end": {number(rng)}}}', number(rng)]
    )
    return (
        f'<think>a</think><tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call><turn_sum>b</turn_sum>'
    )


def brain(rng: random.Random) -> str:
    start, end = sorted(rng.sample(range(0, 600), 2))
    prompt = f', "prompt": "{rng.choice(["a flash", "red", "the mark"])}"'
    name, more = rng.choice([("uniform_sample", ""), ("clip_sample", prompt)])
    arguments = f'"start_frame": {start}, "end_frame": {end}{more}'
    return f'<thinking>a</thinking><tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


def wild_brain(rng: random.Random) -> str:
    arguments = f'"start_frame": {number(rng)}, "end_frame": {number(rng)}, "prompt": {number(rng)}'
    name = rng.choice(["uniform_sample", "clip_sample", "other"])
    return f'<thinking>a</thinking><tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


def select(rng: random.Random) -> str:
    calls = []
    for _ in range(rng.choice([1, 1, 2, 5])):
        start = rng.randint(0, 50)
        end, count, resize = start + rng.randint(0, 20), rng.randint(1, 40), rng.choice(["0.5", "1", "null", "2"])
        arguments = f'"start_time": {start}, "end_time": {end}, "nframes": {count}, "resize": {resize}'
        calls.append(f'<tool_call>{{"tool": "frame_select", "arguments": {{{arguments}}}}}</tool_call>')
    return "<think>a</think>" + "".join(calls)


def wild_select(rng: random.Random) -> str:
    arguments = (
        f'"start_time": {number(rng)}, "end_time": {number(rng)}, "nframes": {number(rng)}, "resize": {number(rng)}'
    )
    tool = rng.choice(["frame_select", "other"])
    return f'<think>a</think><tool_call>{{"tool": "{tool}", "arguments": {{{arguments}}}}}</tool_call>'


def crop(rng: random.Random) -> str:
    calls = []
    for _ in range(rng.choice([1, 1, 1, 2, 6])):
        start = rng.randint(0, 50)
        end = start + rng.choice([0, 1, 2.5, 20, 90])
        arguments = f'"video_path": "memory", "start_time": {start}, "end_time": {end}'
        calls.append(f'<tool_call>{{"name": "crop_video", "arguments": {{{arguments}}}}}</tool_call>')
    return "<think>a</think>" + "".join(calls)


def wild_crop(rng: random.Random) -> str:
    path = rng.choice(['"memory"', '"memory"', '"/etc/passwd"', "null"])
    arguments = f'"video_path": {path}, "start_time": {number(rng)}, "end_time": {number(rng)}'
    name = rng.choice(["crop_video", "crop_video", "other"])
    return f'<think>a</think><tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


def seek(rng: random.Random) -> str:
    start, end = sorted(rng.sample(range(0, 60), 2))
    query = rng.choice(["", '"query": "a flash", ', '"query": "red", '])
    count = rng.choice(["", f', "num_frames": {rng.randint(1, 9)}'])
    arguments = f'{query}"start_time": {start}, "end_time": {end}{count}'
    return f'<think>a</think><tool_call>{{"name": "seek_video_frames", "arguments": {{{arguments}}}}}</tool_call>'


def wild_seek(rng: random.Random) -> str:
    arguments = (
        f'"query": {number(rng)}, "start_time": {number(rng)}, "end_time": {number(rng)}, "num_frames": {number(rng)}'
    )
    name = rng.choice(["seek_video_frames", "other"])
    return f'<think>a</think><tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


def crops(rng: random.Random) -> str:
    calls = []
    for _ in range(rng.choice([1, 2, 2, 3, 6])):
        start = rng.randint(0, 60)
        end = start + rng.randint(0, 30)
        if rng.random() < 0.3:
            calls.append(f"<tool_code>crop_video(start={start}, end={end})</tool_code>")
        else:
            arguments = f'"start_time": {start}, "end_time": {end}'
            calls.append(f'<tool_call>{{"name": "crop_video", "arguments": {{{arguments}}}}}</tool_call>')
    return "<think>look around</think>" + "".join(calls)


def wild_crops(rng: random.Random) -> str:
    arguments = f'"start_time": {number(rng)}, "end_time": {number(rng)}, "video_path": {number(rng)}'
    name = rng.choice(["crop_video", "crop_video", "refused", "other"])
    return (
        f'<think>a</think><tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'
        f"<tool_code>{name}({number(rng)}, end_time={number(rng)})</tool_code>"
    )


def ground(rng: random.Random) -> str:
    start = rng.randint(0, 50)
    strategy = rng.choice(["coarse", "medium", "fine"])
    call = f'{{"temporal_segment": [{start}, {start + rng.randint(1, 20)}], "sampling_strategy": "{strategy}"}}'
    return f"<think>a</think><grounding>{call}</grounding>"


def wild_ground(rng: random.Random) -> str:
    strategy = rng.choice(["fine", "best", "coarse"])
    call = f'{{"temporal_segment": [{number(rng)}, {number(rng)}], "sampling_strategy": "{strategy}"}}'
    return f"<think>a</think><grounding>{rng.choice([call, call.replace(chr(34), chr(39)), call[:-1]])}</grounding>"


Writer = Callable[[random.Random], str]
GRAMMARS: dict[str, tuple[tuple[Writer, ...], str]] = {
    "videozoomer": (
        (lambda rng: "<think>a</think>" + zoom(rng), lambda rng: "<think>a</think>" + wild_zoom(rng)),
        "<think>a</think><answer>{}</answer>",
    ),
    "framethinker": ((choose, choose, wild_choose, lookup), "<think>a</think><action>output answer: {}</action>"),
    "framemind": ((mind, mind, wild_mind), "<think>a</think><answer>{}</answer>"),
    "videobrain": ((brain, brain, wild_brain), "<thinking>a</thinking><answer>{}</answer>"),
    "eva": ((select, select, wild_select), "<think>a</think><answer>{}</answer>"),
    "videoo3": ((ground, ground, wild_ground), "<think>a</think><answer>{}</answer>"),
    "paravt": ((crops, crops, wild_crops), "<think>it is clear</think><answer>{}</answer>"),
    "timesearch": ((seek, seek, wild_seek), "<think>a</think><answer>{}</answer>"),
    "longvt": ((crop, crop, wild_crop), "<think>a</think><answer>{}</answer>"),
}
WINDOWS: dict[str, tuple[Interval, ...]] = {"longvt": ((12.0, 20.0),), "videoo3": ((10.0, 20.0), (40.0, 45.0))}
"""Gold windows of the rows, for systems whose reward looks at them."""
SAYINGS = (
    "B",
    "B.",
    "(B)",
    "b",
    "green",
    "B: green",
    "A",
    "C. blue",
    r"\boxed{B}",
    "The answer is B",
    "A or B",
    "",
    "B. A. B.",
    "42",
    "two dogs run",
    "green.",
    "B C",
    "not B",
)


def mutated(text: str, rng: random.Random) -> str:
    """The text with something broken."""
    kind = rng.randrange(7)
    at = rng.randrange(len(text) + 1) if text else 0
    if kind == 0:
        return text[:at]
    if kind == 1:
        return text[:at] + text[min(len(text), at + rng.randint(1, 12)) :]
    if kind == 2:
        return (
            text[:at]
            + rng.choice(["<think>", "</answer>", "<|image_pad|>", "\u202e", "{", "</tool_call>", "\ud800x"])
            + text[at:]
        )
    if kind == 3:
        return text + text
    if kind == 4:
        return text.upper()
    if kind == 5:
        return text + rng.choice([" ok", "\n", "<answer>B</answer>", "<think>"])
    return "".join(rng.sample(text, len(text)))


def script(name: str, rng: random.Random) -> list[str]:
    """The turns that an episode's agent says; the last one is said again and again."""
    writers, answer = GRAMMARS[name]
    turns = [rng.choice(writers)(rng) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 6]))]
    turns.append(answer.format(rng.choice(SAYINGS)))
    if rng.random() < 0.35:
        at = rng.randrange(len(turns))
        turns[at] = mutated(turns[at], rng)
    return turns


def systems() -> dict[str, list[Any]]:
    """Each system as published, with small constants, and with rules that have a key."""
    return {
        "videozoomer": [
            VideoZoomer(),
            VideoZoomer(
                min_pixels=784,
                max_pixels=3136,
                overview_max_frames=8,
                max_turns=3,
                answer_match="robust",
                overview="uniform",
            ),
        ],
        "framethinker": [
            FrameThinker(),
            FrameThinker(overview_frames=4, look_frames=4, max_width=28, max_height=28, answer_match="exact"),
            replace(
                FrameThinker(), weights=replace(FrameThinker().weights, bonus="turns", conditional=False, format=0.1)
            ),
        ],
        "framemind": [
            FrameMind(),
            FrameMind(context="all", max_images=200),
            replace(FrameMind(), weights=replace(FrameMind().weights, turn_bonus="turn_sums")),
        ],
        "videobrain": [VideoBrain(), VideoBrain(answer_match="robust", overview_frames=4, illegal_call="end")],
        "eva": [Eva(), Eva(csv=False, end_on_refusal=False, max_tokens=400, overview="uniform", overview_frames=4)],
        "longvt": [
            LongVT(overview_max_frames=16, crop_max_frames=8),
            LongVT(
                overview="uniform",
                overview_max_frames=4,
                crop_past_end="clamped",
                max_images=40,
                time_reward="recall",
                weights=LongVTWeights(tool=1.0),
            ),
        ],
        "paravt": [
            ParaVT(reply_prefix=""),
            ParaVT(overview_least=2, overview_frames=8, crop_max_frames=4, max_calls=2, answer_fallback=False),
            ParaVT(crops_as="frames", reply_prefix="", max_turns=3, forced_answer="Answer.", open_match="judge"),
        ],
        "videoo3": [
            VideoO3(unnamed_class="single_tool"),
            VideoO3(overview_max_frames=8, crop_max_frames=8, frames_as="images", frame_max_tokens=4, max_videos=3),
            VideoO3(overview="uniform", overview_max_frames=128, overview_tokens=6_144, unnamed_class="multi_tool"),
            VideoO3(overview_max_frames=4, crop_max_frames=4, answer_match="robust", unnamed_class="single_direct"),
        ],
        "timesearch": [
            TimeSearch(),
            TimeSearch(overview_max_frames=4, frames_as="images", csv=False, seek_frames=3, answer_match="robust"),
        ],
    }


# Of these systems alone: another corpus is another tokenizer, and other digests for all.
TOKENIZED = ("videozoomer", "framethinker", "framemind", "videobrain", "eva")
CORPUS = " ".join(
    writer(random.Random(seed)) for name in TOKENIZED for writer in GRAMMARS[name][0] for seed in range(9)
)


async def episode(name: str, index: int, kinds: Sequence[Any], chat_format: Any) -> dict[str, Any]:
    rng = random.Random(f"{name}-{index}")
    system = kinds[index % len(kinds)]
    turns = script(name, rng)
    open_ended = rng.random() < 0.2
    qa = VideoQA(
        id=f"q{index}",
        video="memory",
        question=rng.choice(["What flashes at 0:42?", "What flashes?"]),
        answer="two dogs run" if open_ended else "B",
        answer_type="open_ended" if open_ended else "multiple_choice",
        options=() if open_ended else OPTIONS,
        extra={"class": rng.choice(["direct", "adaptive", "active"]), "overview_times": [1.0, 5.0]},
        windows=WINDOWS.get(name, ()),
    )
    source = BlankSource(rng.choice([DURATION, DURATION, 400.0, 7.3]), *rng.choice([(64, 64), (1280, 720), (360, 640)]))
    graders = Graders(judge=HashJudge(), source=source, verifier=HashVerifier())

    def say(view: Any) -> str:
        return turns[min(len(view.turns), len(turns) - 1)]

    def said_aside(request: AsideRequest) -> str:
        return SAYINGS[int(len(SAYINGS) * digest([text_of(message.parts) for message in request.messages]))]

    found: dict[str, Any] = {"system": name, "number": index}
    attempts = await play_attempts(
        system, lambda current: ScriptedPolicy(say, said_aside), qa, source, HashRetriever(), rollout_index=index % 9
    )
    found["attempts"] = [one.to_dict() for one in attempts]
    trajectory = attempts[-1]
    for what, work in (("score", system.score), ("grade", system.grade)):
        try:
            result = await work(trajectory, qa, graders)
            found[what] = result if what == "grade" else [result.reward, result.acc, result.format, dict(result.terms)]
        except EndpointError as error:
            found[what] = f"error: {error}"
    try:
        verdict = await verify(system, trajectory, qa, graders)
        found["verify"] = [verdict.reason, verdict.rewards]
    except EndpointError as error:
        found["verify"] = f"error: {error}"
    alone = await play(without_tools(system), ScriptedPolicy(lambda view: turns[-1]), qa, source, HashRetriever())
    found["direct"] = alone.to_dict()
    if index % 10 == 0:
        try:
            sequences = await replay(trajectory, qa, system, chat_format, TokenLimits(20_000, 40_000, 4_000))
            found["replay"] = [[list(one.ids), list(one.loss_mask), len(one.visuals)] for one in sequences]
        except (ReplayError, TypeError) as error:
            found["replay"] = f"error: {error}"
    return found


def episodes(numbers: Sequence[int] = range(EPISODES)) -> Iterator[dict[str, Any]]:
    """Golden episodes by number, one system after the other."""
    chat_format = ChatFormat(
        build_tokenizer([CORPUS]),
        processor_of(
            Qwen2VLImageProcessor(min_pixels=784, max_pixels=100_352),
            Qwen2VLVideoProcessor(size={"shortest_edge": 784, "longest_edge": 12_845_056}),
        ),
    )
    with asyncio.Runner() as runner:
        for name, kinds in systems().items():
            for index in numbers:
                yield runner.run(episode(name, index, kinds, chat_format))


def line_of(one: dict[str, Any]) -> str:
    """An episode as a line of json."""
    return json.dumps(one, sort_keys=True) + "\n"


def digest_of(line: str) -> str:
    """Six hex digits that change with anything in a line."""
    return hashlib.blake2b(line.encode(), digest_size=3).hexdigest()


def read_digests() -> dict[str, list[str]]:
    """The digests of ``episodes.txt`` by system."""
    found: dict[str, list[str]] = {}
    for line in DIGESTS.read_text(encoding="utf-8").splitlines():
        name, *digests = line.split()
        found.setdefault(name, []).extend(digests)
    return found


def write_digests(lines: Iterable[tuple[str, str]]) -> None:
    """Write ``episodes.txt``: (system, line of json) of all episodes."""
    found: dict[str, list[str]] = {}
    for name, line in lines:
        found.setdefault(name, []).append(digest_of(line))
    rows = [
        " ".join([name, *digests[at : at + 16]]) for name, digests in found.items() for at in range(0, len(digests), 16)
    ]
    DIGESTS.write_text("\n".join(rows) + "\n", encoding="utf-8")


def main() -> None:
    """Write the digests, or the whole episodes to a file."""
    lines = ((one["system"], line_of(one)) for one in episodes())
    if len(sys.argv) > 1:
        with gzip.open(Path(sys.argv[1]), "wt", encoding="utf-8") as file:
            file.writelines(line for _, line in lines)
    else:
        write_digests(lines)


if __name__ == "__main__":
    main()
