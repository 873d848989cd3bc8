"""Converters of published data sets into rows: one module each, named here.

A new one is a module with a ``CONVERTER`` and a line below. ``docs/datasets.md`` has them all.
"""

from agentic_video.converters import (
    activitynet_captions,
    cgbench,
    charades_sta,
    clevrer,
    dream1k,
    elv_halluc,
    eva,
    framethinker,
    llava_video,
    longvideo_reason,
    longvideobench,
    longvt,
    lsdbench,
    lvbench,
    mlvu,
    mvbench,
    nextgqa,
    nextqa,
    perception_test,
    qvhighlights,
    rextime,
    star,
    tempcompass,
    temporalbench,
    timesearch,
    vdc,
    video_holmes,
    video_mmlu,
    video_mmmu,
    videoespresso,
    videomme,
    videozoomer,
)
from agentic_video.converters.base import Converter

_MODULES = (
    # training
    longvideo_reason,
    cgbench,
    nextqa,
    star,
    perception_test,
    clevrer,
    llava_video,
    videoespresso,
    videozoomer,
    framethinker,
    timesearch,
    longvt,
    # evaluation
    longvideobench,
    videomme,
    mlvu,
    lvbench,
    lsdbench,
    mvbench,
    video_holmes,
    video_mmmu,
    video_mmlu,
    eva,
    dream1k,
    temporalbench,
    tempcompass,
    vdc,
    elv_halluc,
    # temporal grounding
    charades_sta,
    activitynet_captions,
    qvhighlights,
    nextgqa,
    rextime,
)
CONVERTERS: dict[str, Converter] = {module.CONVERTER.name: module.CONVERTER for module in _MODULES}
"""All converters by name."""
