"""Limits of large, long and many-packet videos."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentic_video.video.errors import VideoError
from agentic_video.video.limits import DEFAULT_LIMITS, Limits, coded_pixels, decoder_bytes, held_bytes, max_unconverted
from agentic_video.video.open import open_video
from agentic_video.video.store_config import StoreConfig
from benchmarks.hostile import videos

Video = Callable[[str], str]
MIB = 2**20


def write(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def refusal(path: str, limits: Limits) -> str:
    with pytest.raises(VideoError) as caught, open_video(path, limits=limits):
        pass
    assert caught.value.reason == "unsupported"
    return caught.value.message


def test_sums() -> None:
    assert coded_pixels(48, 32) == 2**21 == coded_pixels(1, 1)
    assert coded_pixels(7680, 4320) == 7680 * 4352
    assert [max_unconverted(pixels) for pixels in (1, 2**21, 2**22, 2**24, 2**26)] == [8, 8, 4, 1, 1]
    # 17 pictures of 12 bits a pixel and 0.75 bytes of motion; then 8 more that wait, their RGB, and one that is resized
    assert held_bytes("h264", "yuv420p", 640, 360) == 2**21 * 2.25 * 17
    assert decoder_bytes("h264", "yuv420p", 640, 360) == 2**21 * (2.25 * 25 + 3 * 8 + 7)
    assert decoder_bytes("hevc", "yuv420p", 7680, 4320) < StoreConfig().bounds()[0] == 2048 * MIB


def test_a_picture_has_a_largest_number_of_pixels(video: Video) -> None:
    path = video("h264_b_frames")  # 128 x 64
    open_video(path, limits=Limits(pixels=128 * 64)).close()
    assert "max_pixels" in refusal(path, Limits(pixels=128 * 64 - 1))
    assert "decode_bytes" in refusal(path, Limits(memory=100 * MIB))


def test_a_video_has_a_largest_number_of_packets(video: Video) -> None:
    for name in ("h264_b_frames", "h264_raw"):
        count = 60 if name == "h264_b_frames" else 40
        open_video(video(name), limits=Limits(packets=count)).close()
        assert "max_packets" in refusal(video(name), Limits(packets=count - 1))


@pytest.mark.parametrize("kind", [b"stsz", b"stts", b"trun"])
def test_samples_that_an_mp4_only_claims_are_refused_before_it_is_opened(tmp_path: Path, kind: bytes) -> None:
    base, place = ("fragmented.mp4", 4) if kind == b"trun" else ("mp4", 8)
    data = videos.base(base)
    open_video(write(tmp_path, "good.mp4", data)).close()
    bad = write(tmp_path, "bad.mp4", videos.patched(data, kind, place, 20_000_000))
    assert "max_packets" in refusal(bad, DEFAULT_LIMITS)


@pytest.mark.parametrize("size", [(8192, 16), (16, 8192)])
def test_a_picture_that_is_too_long_is_an_error_of_the_video(tmp_path: Path, size: tuple[int, int]) -> None:
    path = write(tmp_path, "long.mp4", videos.encoded("mp4", "libx264", size=size, frames=2))
    refusal(path, DEFAULT_LIMITS)


def test_time_stamps_at_the_end_of_time(tmp_path: Path) -> None:
    path = write(tmp_path, "far.nut", videos.far_stamps("nut", 2**53))
    refusal(path, DEFAULT_LIMITS)
    with open_video(write(tmp_path, "late.nut", videos.far_stamps("nut", 2**33))) as reader:
        assert 600_000 < reader.info.duration < 700_000, "a week is a long video"


@pytest.mark.parametrize("container", ["mov", "nut", "avi"])
def test_few_bytes_of_many_pixels(tmp_path: Path, container: str) -> None:
    data = videos.large_pictures(container, 16_000, 1)
    assert len(data) < 100_000
    refusal(write(tmp_path, f"a.{container}", data), DEFAULT_LIMITS)


def test_a_stream_may_grow_within_its_reserved_memory(tmp_path: Path) -> None:
    small, large = videos.base("264"), videos.encoded("h264", "libx264", size=(1920, 1080), frames=4)
    larger = videos.encoded("h264", "libx264", size=(2560, 1440), frames=4)
    with open_video(write(tmp_path, "a.264", small + large)) as reader:
        assert reader.read([25])[0].shape == (32, 48, 3)
    with open_video(write(tmp_path, "b.264", small + larger)) as reader:
        assert reader.info.num_frames < 28, "what exceeds it doesn't decode"


def test_limits_of_a_store() -> None:
    assert StoreConfig(max_bytes=1).limits(1).memory == 512 * MIB
    assert StoreConfig().limits(2**40).memory == 8192 * MIB
    assert StoreConfig().limits(2048 * MIB) == Limits(2**26, 2**22, 2048 * MIB)
    assert StoreConfig(decode_bytes=2560).limits(0) == Limits(2**26, 10, 2560)
