"""Threads with which vLLM's own process makes images into patches."""

import os

from agentic_video.utils.resources import cpu_limit

VARIABLE = "OMP_NUM_THREADS"
MOST = 8


def image_threads(engines: int, cpus: int) -> int:
    """How many an engine's process may have: half of its share of a node's cores, which decoders want, too.

    Args:
        engines: Of the node.
        cpus: Of the node.
    """
    return max(1, min(MOST, cpus // (2 * max(1, engines))))


def take_image_threads(gpus_each: int) -> None:
    """Let this process of a Ray node use its share, from now on: vLLM reads the variable whenever it processes images.

    Ray sets it to the number of an actor's CPUs, which is 1 for engines. What a user has set is left.

    Args:
        gpus_each: GPUs of this node that belong to an engine.
    """
    import ray

    if os.environ.get(VARIABLE, "1") != "1" or not ray.is_initialized():
        return
    here = ray.get_runtime_context().get_node_id()
    gpus = next((node["Resources"].get("GPU", 0) for node in ray.nodes() if node["NodeID"] == here), 0)
    if gpus:
        engines = max(1, int(gpus) // max(1, gpus_each))
        os.environ[VARIABLE] = str(image_threads(engines, cpu_limit()))
