"""Corrupted and hostile video files, read through a frame store.

File ``n`` of a seed is always the same: a small video with damage, or one of the files that are built to cost memory,
time or descriptors, or to have other files read. A child process reads them; when a file ends it, the next child
continues after that file.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, cast

import av
import numpy as np
from av.video.stream import VideoStream

from agentic_video.utils.process import share_arenas
from agentic_video.video.errors import VideoError
from agentic_video.video.source import FrameRequest
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig

SLICE = 200
"""Files that one child reads."""
AT_A_TIME = 4
TIME_LIMIT = 10.0
STORE = StoreConfig(max_bytes=256 * 2**20, workers=2, time_limit=TIME_LIMIT)

Made = tuple[str, bytes]
"""A file's suffix and its content."""


def encoded(
    container: str,
    codec: str,
    size: tuple[int, int] = (48, 32),
    frames: int = 24,
    pixel_format: str = "yuv420p",
    **how: Any,
) -> bytes:
    """A small video: a square that moves; ``how`` goes to the encoder, ``muxing`` to the container."""
    muxing = how.pop("muxing", {})
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=muxing) as out:
        stream = cast(
            VideoStream, out.add_stream(codec, rate=25, options={key: str(value) for key, value in how.items()})
        )
        stream.width, stream.height, stream.pix_fmt = *size, pixel_format
        stream.codec_context.thread_count = 1
        for number in range(frames):
            picture = np.zeros((size[1], size[0], 3), np.uint8)
            picture[:16, number % 32 : number % 32 + 16] = 40 + number * 8
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode(None))
    return file.getvalue()


BASES: dict[str, Callable[[], bytes]] = {
    "mp4": lambda: encoded("mp4", "libx264", g=8, bf=2),
    "fragmented.mp4": lambda: encoded("mp4", "libx264", g=8, muxing={"movflags": "frag_keyframe+empty_moov"}),
    "hevc.mp4": lambda: encoded("mp4", "libx265", (64, 64), 24, "yuv420p", **{"x265-params": "log-level=none"}),
    "mkv": lambda: encoded("matroska", "libx264", g=8),
    "webm": lambda: encoded("webm", "libvpx", g=8),
    "avi": lambda: encoded("avi", "mpeg4", g=8),
    "ts": lambda: encoded("mpegts", "mpeg2video", g=8),
    "mpg": lambda: encoded("mpeg", "mpeg1video", g=8),
    "flv": lambda: encoded("flv", "flv1", g=8),
    "nut": lambda: encoded("nut", "ffv1", pixel_format="yuv420p"),
    "mov": lambda: encoded("mov", "mjpeg", pixel_format="yuvj420p"),
    "png.mov": lambda: encoded("mov", "png", pixel_format="rgb24"),
    "gif": lambda: encoded("gif", "gif", pixel_format="rgb8"),
    "264": lambda: encoded("h264", "libx264", g=8),
}


@cache
def base(name: str) -> bytes:
    """One of the good videos."""
    return BASES[name]()


def png(side: int, depth: int = 1) -> bytes:
    """A black PNG of a few kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    kind = 0 if depth == 1 else 2
    row = 1 + (side // 8 if depth == 1 else 3 * side)
    packer = zlib.compressobj(9)
    lines = b"".join(packer.compress(bytes(row * 100)) for _ in range(side // 100)) + packer.flush()
    header = struct.pack(">IIBBBBB", side, side, 1 if depth == 1 else 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


@cache
def large_pictures(container: str, side: int, depth: int) -> bytes:
    """Three pictures of many pixels and few bytes."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream = out.add_stream("png", rate=1)
        stream.width = stream.height = side
        stream.pix_fmt = "monob" if depth == 1 else "rgb24"
        data = png(side, depth)
        for number in range(3):
            packet = av.Packet(data)
            packet.stream, packet.pts, packet.dts, packet.duration = stream, number, number, 1
            packet.time_base, packet.is_keyframe = Fraction(1), True
            out.mux(packet)
    return file.getvalue()


@cache
def many_references(side: tuple[int, int], frames: int) -> bytes:
    """A raw H.264 stream whose decoder holds as many pictures as it may."""
    return encoded("h264", "libx264", size=side, frames=frames, refs=16, bf=0, g=250, preset="ultrafast")


def patched(data: bytes, kind: bytes, place: int, number: int) -> bytes:
    """An MP4 with a number written into each box of a kind, some bytes after its name."""
    made, start = bytearray(data), data.find(kind)
    while start >= 0:
        made[start + 4 + place : start + 8 + place] = struct.pack(">I", number & 0xFFFFFFFF)
        start = data.find(kind, start + 4)
    return bytes(made)


def many_samples(rng: random.Random) -> Made:
    """An MP4 whose tables say that there are more samples than its bytes could hold."""
    count = rng.choice([2_000_000, 4_000_000, 20_000_000, 80_000_000, 2**31, 2**32 - 1])
    if rng.random() < 0.3:
        return "mp4", patched(base("fragmented.mp4"), b"trun", 4, count)
    data = base("mp4")
    if rng.random() < 0.8:
        data = patched(patched(data, b"stsz", 4, 1), b"stsz", 8, count)  # all of one size: no table is needed
    if rng.random() < 0.8:
        data = patched(data, b"stts", 8, count)
    if rng.random() < 0.8:
        data = patched(data, b"stsc", 12, count)
    return "mp4", data


def listed(rng: random.Random) -> Made:
    """A list of other files, or of itself: ``{name}`` is the file's own name."""
    segment = "#EXTINF:1,\n{name}\n"
    texts = [
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{name}\n",
        "#EXTM3U\n" + "#EXT-X-STREAM-INF:BANDWIDTH=1\n{name}\n" * 50,
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n" + segment,
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n" + segment + "#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nhttp://127.0.0.1:9/a.ts\n",
        "ffconcat version 1.0\nfile {name}\n",
        "ffconcat version 1.0\n" + "file {name}\n" * 100,
        "ffconcat version 1.0\nfile /etc/passwd\n",
        '<?xml version="1.0"?><MPD type="dynamic" minimumUpdatePeriod="PT1S"><Period><AdaptationSet><Representation>'
        "<BaseURL>{name}</BaseURL></Representation></AdaptationSet></Period></MPD>",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 9 RTP/AVP 96\na=rtpmap:96 H264/90000\n",
        "1\n00:00:01,000 --> 00:00:02,000\nHello\n",
        "\x1b[1mSome notes\x1b[0m\n" * 50,
        "<svg xmlns='http://www.w3.org/2000/svg' width='9999' height='9999'/>",
        ";FFMETADATA1\ntitle=x\n",
    ]
    return rng.choice(["m3u8", "ffconcat", "txt", "nfo", "mp4", "mkv", "srt", "mpd"]), rng.choice(texts).encode()


def large(rng: random.Random) -> Made:
    """Pictures that take much memory."""
    kind = rng.randrange(5)
    if kind == 0:
        container = rng.choice(["mov", "nut", "avi"])
        return container, large_pictures(container, rng.choice([16_000, 9_000, 8_000, 4_000]), 1)
    if kind == 1:
        return "mov", large_pictures("mov", rng.choice([8_000, 5_000, 3_000]), 8)
    if kind == 2:
        side = rng.choice([65_535, 16_000, 8_000, 4_000])
        return "gif", b"GIF89a" + struct.pack("<HH", side, side) + base("gif")[10:]
    if kind == 3:
        return "264", many_references(rng.choice([(3840, 2160), (1920, 1080)]), 20)
    return "264", base("264") + many_references((3840, 2160), 20)  # grows midway


def odd(rng: random.Random) -> Made:
    """Times, sizes and shapes at the edge."""
    kind = rng.randrange(6)
    if kind == 0:
        return "mp4", encoded("mp4", "libx264", size=(rng.choice([4096, 8192, 16_384]), 16), frames=2)
    if kind == 1:
        return "nut", far_stamps("nut", rng.choice([2**33, 2**40, 2**53, 2**61]))
    if kind == 2:
        return "mkv", far_stamps("matroska", rng.choice([2**33, 2**40]))
    if kind == 3:
        return "mp4", patched(base("mp4"), b"mdhd", 12, rng.choice([0, 1, 2**31, 2**32 - 1]))
    if kind == 4:
        return rng.choice(["mp4", "mkv", "avi"]), b""
    return rng.choice(["mp4", "webm"]), rng.randbytes(rng.choice([1, 16, 1_000, 100_000]))


@cache
def far_stamps(container: str, last: int) -> bytes:
    """A video whose last frame has an extreme timestamp."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as out, av.open(io.BytesIO(base("mov")), "r") as source:
        stream = out.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(source.demux(video=0)):
            if packet.size and number < 4:
                packet.stream = stream
                packet.pts = packet.dts = number if number < 3 else last
                out.mux(packet)
    return file.getvalue()


def damaged(rng: random.Random) -> Made:
    """A good video with damage."""
    name = rng.choice(sorted(BASES))
    data = bytearray(base(name))
    for _ in range(rng.choice([1, 1, 2, 5, 20])):
        place, kind = rng.randrange(max(1, len(data))), rng.randrange(8)
        if rng.random() < 0.5:  # where the tables are
            place = rng.choice([rng.randrange(min(len(data), 2_000) or 1), max(0, len(data) - rng.randrange(1, 2_000))])
        if kind == 0:
            data[place : place + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            data[place : place + 4] = struct.pack(
                rng.choice("<>") + "I", rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
            )
        elif kind == 2:
            data[place : place + 8] = struct.pack(">q", rng.choice([-1, 2**62, -(2**63)]))
        elif kind == 3:
            del data[place:]
        elif kind == 4:
            del data[place : place + rng.randrange(1, 500)]
        elif kind == 5:
            data[place:place] = rng.randbytes(rng.randrange(1, 200))
        elif kind == 6:
            data[place:place] = data[place : place + rng.randrange(1, 2_000)]
        else:
            data[place : place + 200] = bytes(200)
    return name, bytes(data)


KINDS: dict[str, tuple[Callable[[random.Random], Made], int]] = {
    "damaged": (damaged, 80),
    "listed": (listed, 5),
    "many_samples": (many_samples, 5),
    "large": (large, 5),
    "odd": (odd, 5),
}
"""Makers, and how often each is drawn."""


def make(seed: int, number: int) -> tuple[str, str, bytes]:
    """File ``number`` of a seed: its kind, its name and its content."""
    rng = random.Random(f"{seed}/{number}")
    kind = rng.choices(list(KINDS), [share for _, share in KINDS.values()])[0]
    suffix, data = KINDS[kind][0](rng)
    name = f"{number}.{suffix}"
    return kind, name, data.replace(b"{name}", name.encode()) if kind == "listed" else data


async def look(store: FrameStore, path: str) -> str:
    """Open a video as an agent would, look at some small frames and at one in full size; the outcome's name."""
    try:
        info = (await store.serve(FrameRequest(path))).info
        last = info.num_frames - 1
        await store.serve(FrameRequest(path, sorted({0, last // 2, last}), size=(112, 112)))
        await store.serve(FrameRequest(path, [last // 3]))
    except VideoError as error:
        return error.reason
    except Exception as error:  # what the store must never let through
        return f"raised {type(error).__name__}"
    return "frames"


def status(name: str) -> int:
    """A number from this process's status file."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])


def held() -> tuple[int, int]:
    """Threads and descriptors of this process."""
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def read_files(files: Sequence[str], tell: Callable[[dict[str, Any]], None], config: StoreConfig = STORE) -> None:
    """Read files through one store; report before and after each few files, and at the end what is left behind."""
    before = held()
    store = FrameStore(config)
    for start in range(0, len(files), AT_A_TIME):
        some = files[start : start + AT_A_TIME]
        tell({"begins": start, "next": start + len(some)})
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        begun = time.monotonic()

        async def all_of_them(some: Sequence[str] = some) -> list[str]:
            return await asyncio.gather(*(look(store, file) for file in some))

        outcomes = asyncio.run(all_of_them())
        seconds = time.monotonic() - begun
        # Without mapped files: torch's libraries, 240 MB, which all processes of a node share.
        peak = (status("VmHWM") - status("RssFile")) * 1024
        tell({"first": start, "outcomes": outcomes, "seconds": seconds, "peak": peak})
    store.close()
    # A read that was given up ends by itself, on a busy machine later.
    patience = time.monotonic() + 30
    after = held()
    while (after[0] > before[0] or after[1] > before[1]) and time.monotonic() < patience:
        time.sleep(0.1)
        after = held()
    tell({"threads": after[0] - before[0], "descriptors": after[1] - before[1]})


def child(folder: str) -> None:
    """Entry point of the child process."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    av.logging.set_level(None)
    share_arenas()  # as the actor of a node does
    files = sorted((str(file) for file in Path(folder).iterdir()), key=lambda file: int(Path(file).name.split(".")[0]))
    read_files(files, lambda told: print(json.dumps(told), file=out, flush=True))


def slices(seed: int, first: int, count: int) -> Iterator[dict[str, Any]]:
    """Read files in children, and continue after a file that ends its child."""
    while count > 0:
        size = min(SLICE, count)
        with tempfile.TemporaryDirectory() as folder:
            kinds = []
            for number in range(first, first + size):
                kind, name, data = make(seed, number)
                kinds.append(kind)
                (Path(folder) / name).write_bytes(data)
            part = read_in_child(folder, kinds)
        yield {"first": first, **part}
        first, count = first + part["count"], count - part["count"]


def read_in_child(folder: str, kinds: list[str]) -> dict[str, Any]:
    """Read numbered files of given kinds in a process of their own: outcomes and resources."""
    command = [sys.executable, "-m", "benchmarks.hostile.run", "child", folder]
    outcomes: Counter[str] = Counter()
    total: dict[str, Any] = {"count": len(kinds), "peak": 0, "seconds": 0.0, "slowest": 0.0}
    begun: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            told = json.loads(line)
            if "begins" in told:
                begun = told
            elif "outcomes" in told:
                some = range(told["first"], told["first"] + len(told["outcomes"]))
                outcomes.update(f"{kinds[number]}: {end}" for number, end in zip(some, told["outcomes"], strict=True))
                for name, value in (("peak", told["peak"]), ("slowest", told["seconds"])):
                    if value > total[name]:
                        total |= {name: value, f"{name}_from": told["first"]}
                total["seconds"] += told["seconds"]
            else:
                total |= told
    if process.returncode:
        outcomes["process ended"] += 1
        total |= {"code": process.returncode, "count": begun["next"], "ended_in": begun["begins"]}
    return {**total, "outcomes": dict(outcomes)}


def parts(seed: int, count: int, done: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The slices that are still to be read."""
    first = sum(part["count"] for part in done)
    return slices(seed, first, count - first)


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """All slices together."""
    outcomes: Counter[str] = Counter()
    for part in parts:
        outcomes.update(part["outcomes"])
    return {
        "files": sum(part["count"] for part in parts),
        "outcomes": dict(sorted(outcomes.items())),
        "exceptions": sum(count for name, count in outcomes.items() if "raised" in name),
        "processes_ended": outcomes["process ended"],
        "peak_mib": max((part["peak"] for part in parts), default=0) >> 20,
        "slowest_four_files_s": round(max((part["slowest"] for part in parts), default=0.0), 2),
        "reading_s": round(sum(part["seconds"] for part in parts), 1),
        "threads_left": max((part.get("threads", 0) for part in parts), default=0),
        "descriptors_left": max((part.get("descriptors", 0) for part in parts), default=0),
    }
