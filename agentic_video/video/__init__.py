"""Reading video: frames, sampling, exact readers, the bounded frame store and its one-per-node service."""

from agentic_video.video.frames import Frame, PixelBudget, fit_size, fit_within, resize
from agentic_video.video.reader import VideoError, VideoInfo, VideoReader, open_video
from agentic_video.video.sampling import linspace_times, nearest_indices, rate_times, uniform_indices
from agentic_video.video.store import FrameSource, FrameStore, StoreConfig, StoreStats

__all__ = [
    "Frame",
    "FrameSource",
    "FrameStore",
    "PixelBudget",
    "StoreConfig",
    "StoreStats",
    "VideoError",
    "VideoInfo",
    "VideoReader",
    "fit_size",
    "fit_within",
    "linspace_times",
    "nearest_indices",
    "open_video",
    "rate_times",
    "resize",
    "uniform_indices",
]
