"""First views of heavy videos asked for at once, on few decoders: how many are lost, and how long they take.

    python -m benchmarks.throughput.openings --videos FOLDER

A frame store with two decoders gets 64 requests of 64 evenly spaced frames at once, each of another file: HEVC at 1080p
and H.264 at 4K. ``--constant`` takes ``frame_store.time_limit`` alone, without what is added for the work of a request.
"""

import argparse
import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from agentic_video.utils.errors import one_line
from agentic_video.video import store as store_module
from agentic_video.video.errors import VideoError
from agentic_video.video.sampling import uniform_indices
from agentic_video.video.source import FrameRequest
from agentic_video.video.store import FrameStore
from agentic_video.video.store_config import StoreConfig
from benchmarks.tables import table
from benchmarks.throughput.videos import VideoSpec, make_video

FRAMES, SIZE = 64, (448, 252)
OPENINGS: Mapping[VideoSpec, int] = {
    VideoSpec("hevc", 1080, 0.5): 48,
    VideoSpec("h264", 2160, 0.5): 12,
    VideoSpec("h264", 2160, 20): 4,
}


def files_of(spec: VideoSpec, count: int, folder: Path) -> list[Path]:
    """A video under as many names, which a store takes for as many videos."""
    made = make_video(spec, folder)
    names = [folder / f"{spec.name}-{number}.mp4" for number in range(count)]
    for name in names:
        if not name.exists():
            os.link(made, name)
    return names


async def opened(store: FrameStore, file: Path, started: float) -> tuple[float, str]:
    """Seconds from the start until a video's first view is there, and what went wrong."""
    try:
        info = (await store.serve(FrameRequest(str(file)))).info
        assert info
        await store.serve(FrameRequest(str(file), uniform_indices(info.num_frames, FRAMES), size=SIZE))
    except VideoError as error:
        return time.monotonic() - started, one_line(error)
    return time.monotonic() - started, ""


async def all_opened(store: FrameStore, files: list[tuple[str, Path]]) -> dict[str, list[tuple[float, str]]]:
    started = time.monotonic()
    found = await asyncio.gather(*(opened(store, file, started) for _, file in files))
    by_kind: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for (kind, _), result in zip(files, found, strict=True):
        by_kind[kind].append(result)
    return by_kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=Path, required=True, help="folder that keeps the videos")
    parser.add_argument("--limit", type=float, default=StoreConfig.time_limit, help="frame_store.time_limit")
    parser.add_argument("--constant", action="store_true", help="the limit doesn't grow with the work")
    options = parser.parse_args()
    if options.constant:
        store_module.MOST_TIMES_LIMIT = 0
    kinds = {spec.name: files_of(spec, count, options.videos) for spec, count in OPENINGS.items()}
    # the kinds in turn, as a batch mixes them
    places = [(place / len(files), kind, file) for kind, files in kinds.items() for place, file in enumerate(files)]
    store = FrameStore(StoreConfig(workers=2, time_limit=options.limit))
    found = asyncio.run(all_opened(store, [(kind, file) for _, kind, file in sorted(places)]))
    rows = []
    for kind, results in found.items():
        seconds, lost = sorted(seconds for seconds, _ in results), [error for _, error in results if error]
        rows.append([kind, str(len(results)), str(len(lost)), f"{seconds[0]:.0f}", f"{seconds[-1]:.0f}"])
        print(*lost[:1], sep="\n", end="\n" if lost else "")
    print(table(["video", "openings", "lost", "first after, s", "last after, s"], rows))


if __name__ == "__main__":
    main()
