"""Tool latency: a zoom and an overview, compared with decord and with the decoder alone.

    python -m benchmarks.throughput.latency --videos FOLDER --out latency.json

Each round times every way once, in turn, on the same frames, so that a machine that gets slower or faster does so for
all of them; medians of the rounds are reported. The floor decodes exactly the packets that the frames need, read into
memory beforehand, on as many threads as the store may use (``--decoders``), and makes no pictures of them. What the
store does before (demuxing the file once for its index) is a row of its own: ``open``.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.video.stream import VideoStream

from agentic_video.utils.host import cpu_limit
from agentic_video.video.container import open_container, video_stream
from agentic_video.video.errors import Deadline
from agentic_video.video.index import VideoIndex
from agentic_video.video.limits import DEFAULT_LIMITS
from agentic_video.video.open import open_video
from agentic_video.video.sampling import nearest_indices, snapped_indices, uniform_indices
from agentic_video.video.sizes import fit_within, resize
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig
from benchmarks.tables import table
from benchmarks.throughput.videos import CODECS, VideoSpec, make_video

BOX = (448, 252)
"""Pixels that shown frames lie within."""
FACTOR = 28
OVERVIEW_FRAMES = 64
ZOOM_FRAMES = 16
ZOOM_SECONDS = 8.0
_SKIP_MARGIN = 32
"""Packets before a wanted one from which on the decoder leaves nothing out."""

Way = Callable[[], None]
Task = Mapping[str, Way]


@dataclass(frozen=True)
class Run:
    """A stretch of packets to decode."""

    entry: int  # place of the keyframe's packet
    last: int  # place of the last packet needed
    wanted: tuple[int, ...]  # places of the packets whose frames are wanted


def runs_of(index: VideoIndex, indices: Sequence[int]) -> list[Run]:
    """Packets needed by ascending, distinct frame indices: from each one's keyframe to itself, none twice."""
    runs: list[Run] = []
    for number in indices:
        ordinal = int(index.ordinals[number])
        place = int(np.searchsorted(index.keyframes, ordinal, side="right")) - 1
        while place > 0 and index.key_ranks[place] > number:
            place -= 1
        entry = int(index.keyframes[max(0, place)])
        if runs and entry <= runs[-1].last:
            held = runs[-1]
            runs[-1] = Run(held.entry, max(held.last, ordinal), (*held.wanted, ordinal))
        else:
            runs.append(Run(entry, ordinal, (ordinal,)))
    return runs


class Floor:
    """The decoder alone, with all it needs in memory: one decoder a thread, for ascending, distinct frames."""

    def __init__(self, path: str, index: VideoIndex, indices: Sequence[int], decoders: int) -> None:
        self._skips = index.info.codec == "h264"
        self._parts = [
            (self._decoder(path, index), [(run, self._packets(path, index, run)) for run in runs_of(index, share)])
            for share in index.split_work(indices, decoders, 1)
        ]
        self._threads = ThreadPoolExecutor(len(self._parts))
        self.packets = sum(len(packets) for _, part in self._parts for _, packets in part)

    def __call__(self) -> None:
        """Decode; raises RuntimeError if a wanted frame didn't come out."""
        list(self._threads.map(self._decode, self._parts))

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown()

    def _decode(self, part: tuple[Any, list[tuple[Run, list[av.Packet]]]]) -> None:
        (_, stream), runs = part
        context = stream.codec_context
        for run, packets in runs:
            context.flush_buffers()
            wanted = sorted(run.wanted)
            missing = set(wanted)
            for ordinal, packet in enumerate(packets, run.entry):
                following = wanted[int(np.searchsorted(wanted, ordinal))]
                context.skip_frame = "NONREF" if self._skips and ordinal + _SKIP_MARGIN < following else "DEFAULT"
                packet.pts = ordinal
                missing.difference_update(frame.pts for frame in context.decode(packet))
            missing.difference_update(frame.pts for frame in context.decode(None))
            if missing:
                raise RuntimeError(f"frames of packets {sorted(missing)} did not come out")

    @staticmethod
    def _decoder(path: str, index: VideoIndex) -> tuple[Any, VideoStream]:
        container = open_container(path, Deadline(path, None))
        return container, video_stream(path, container, index.stream, DEFAULT_LIMITS)

    @staticmethod
    def _packets(path: str, index: VideoIndex, run: Run) -> list[av.Packet]:
        place = int(np.flatnonzero(index.keyframes == run.entry)[0])
        with open_container(path, Deadline(path, None)) as container:
            stream = container.streams[index.stream]
            container.seek(int(index.key_pts[place]), stream=stream)
            packets: list[av.Packet] = []
            for packet in container.demux(stream):
                stamp = packet.pts if index.stamp_is_pts else packet.dts
                if packets or stamp == index.stamps[run.entry]:
                    packets.append(packet)
                if len(packets) == run.last - run.entry + 1:
                    break
            return packets


def measure(tasks: Mapping[str, Task], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of each way of each task in every round; the first round is a warm-up and isn't counted."""
    seconds: dict[str, dict[str, list[float]]] = {name: {way: [] for way in task} for name, task in tasks.items()}
    for turn in range(rounds + 1):
        for name, task in tasks.items():
            for way, call in task.items():
                started = time.perf_counter()
                call()
                if turn:
                    seconds[name][way].append(time.perf_counter() - started)
    return seconds


def time_video(path: str, decoders: int, rounds: int, decord: bool = True) -> dict[str, dict[str, float | None]]:
    """Median milliseconds of every way, by task."""
    with open_video(path) as reader:
        index, info = reader.index, reader.info
    size = fit_within(info.width, info.height, *BOX, FACTOR)
    overview = uniform_indices(info.num_frames, OVERVIEW_FRAMES)
    keyframes = snapped_indices(index.keyframe_indices(), overview)
    start = 0.5 * info.duration - 0.3 * ZOOM_SECONDS
    zoom = sorted(set(nearest_indices(index.timestamps, list(np.linspace(start, start + ZOOM_SECONDS, ZOOM_FRAMES)))))
    tasks: dict[str, Task] = {"open": _opening(path, decord)}
    floors: list[Floor] = []
    kept = _Kept(path, decoders)
    for name, indices in (("zoom", zoom), ("overview", overview), ("keyframes", keyframes)):
        floor = Floor(path, index, indices, decoders)
        floors.append(floor)
        tasks[name] = {
            "floor": floor,
            "store": kept.cold(indices, size),
            **(_decord(path, indices, size) if decord else {}),
        }
    tasks["zoom"] = {**tasks["zoom"], "warm": kept.warm(zoom, size)}
    try:
        seconds = measure(tasks, rounds)
    finally:
        for floor in floors:
            floor.close()
    figures: dict[str, dict[str, float | None]] = {
        task: {way: 1e3 * statistics.median(values) for way, values in ways.items()} for task, ways in seconds.items()
    }
    for floor, task in zip(floors, ("zoom", "overview", "keyframes"), strict=True):
        pairs = zip(seconds[task]["store"], seconds[task]["floor"], strict=True)
        figures[task]["store/floor"] = statistics.median(store / least for store, least in pairs)
        figures[task]["packets"] = floor.packets
        figures[task]["frames"] = len({"zoom": zoom, "overview": overview, "keyframes": keyframes}[task])
    exact = zip(seconds["overview"]["store"], seconds["keyframes"]["store"], strict=True)
    figures["keyframes"]["exact/keyframes"] = statistics.median(slow / fast for slow, fast in exact)
    return figures


class _Kept:
    """A store that knows the video and holds none of its frames, and one that holds them."""

    def __init__(self, path: str, decoders: int) -> None:
        self._path = path
        # No byte of frames kept: every request is cold, the index and the open files stay.
        self._empty = FrameStore(StoreConfig(max_bytes=0, workers=decoders))
        self._full = FrameStore(StoreConfig(workers=decoders))
        self._empty.probe(path)

    def cold(self, indices: Sequence[int], size: tuple[int, int]) -> Way:
        return lambda: _consume(self._empty.frames(self._path, indices, size))

    def warm(self, indices: Sequence[int], size: tuple[int, int]) -> Way:
        return lambda: _consume(self._full.frames(self._path, indices, size))


def _consume(frames: Sequence[Any]) -> None:
    assert frames and all(frame.image is not None for frame in frames)


def _opening(path: str, with_decord: bool) -> Task:
    def store() -> None:
        fresh = FrameStore(StoreConfig(workers=1))
        fresh.probe(path)
        fresh.close()

    usable = with_decord and _decord_reader(path, 0) is not None
    return {"store": store} | ({} if not usable else {"decord at each call": lambda: _decord_reader(path, 0)})


def _decord(path: str, indices: Sequence[int], size: tuple[int, int]) -> Task:
    """decord as released code calls it, and kept open; with as many threads as it likes."""
    kept = _decord_reader(path, 0)
    if kept is None:
        return {}

    def read(reader: Any) -> None:
        for picture in reader.get_batch(list(indices)).asnumpy():
            resize(picture, *size)

    return {
        "decord at each call": lambda: read(_decord_reader(path, 0)),
        "decord kept open": lambda: read(kept),
    }


def _decord_reader(path: str, threads: int) -> Any | None:
    """decord's reader; None where decord isn't installed or can't read the file."""
    try:
        import decord
    except ImportError:
        return None
    decord.logging.set_level(decord.logging.QUIET)
    try:
        return decord.VideoReader(path, ctx=decord.cpu(0), num_threads=threads)
    except Exception:
        return None


COLUMNS = ("floor", "store", "store/floor", "decord kept open", "decord at each call", "warm")


def figures(results: Mapping[str, Mapping[str, Mapping[str, float | None]]]) -> str:
    """The figures as a Markdown table."""
    columns = (*COLUMNS, "exact/keyframes")
    rows = [
        [video, task, *(_cell(ways.get(column)) for column in columns)]
        for video, tasks in results.items()
        for task, ways in tasks.items()
    ]
    return table(["video", "task", *columns], rows, numbers=len(columns))


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.0f}"


def specs(quick: bool) -> Iterator[VideoSpec]:
    """The measured videos; one short small video for a smoke test."""
    if quick:
        yield VideoSpec("h264", 180, 1)
        return
    for height in (360, 1080):
        for codec in CODECS:
            for minutes in (1, 20, 120):
                yield VideoSpec(codec, height, minutes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=Path, required=True, help="folder in which the videos are made and kept")
    parser.add_argument("--out", type=Path, help="json file for the figures")
    parser.add_argument("--rounds", type=int, default=5, help="times that each way is timed")
    parser.add_argument("--decoders", type=int, default=0, help="decoders of the store and the floor; 0: processors")
    parser.add_argument("--only", default="", help="measure only videos whose name holds this, e.g. h264-360p")
    parser.add_argument("--no-decord", action="store_true", help="leave decord out")
    parser.add_argument("--quick", action="store_true", help="one short small video, one round")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    decoders = options.decoders or cpu_limit()
    results: dict[str, dict[str, dict[str, float | None]]] = {}
    for spec in specs(options.quick):
        if options.only in spec.name:
            path = make_video(spec, options.videos)
            results[spec.name] = time_video(
                str(path), decoders, 1 if options.quick else options.rounds, not options.no_decord
            )
            print(figures({spec.name: results[spec.name]}).splitlines()[-4:], file=sys.stderr, flush=True)
    print(figures(results))
    if options.out is not None:
        machine = {"processors": cpu_limit(), "load": os.getloadavg()[0], "decoders": decoders, "pyav": av.__version__}
        options.out.write_text(json.dumps({"machine": machine, "milliseconds": results}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
