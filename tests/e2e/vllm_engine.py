"""Real vLLM on CPUs: an engine, and a server."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV

JOB = f"test{os.getpid()}"
"""Stands in the name of the socket of the weights."""


@asynccontextmanager
async def vllm_engine(checkpoint: Path, clips: int) -> AsyncIterator[Any]:
    """An engine in float32, whose weights can be synced, for prompts of up to so many clips."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    os.environ["VERL_RAY_JOB_ID"], os.environ["VERL_REPLICA_RANK"] = JOB, "0"
    arguments = AsyncEngineArgs(
        model=str(checkpoint),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=16,
        limit_mm_per_prompt={"image": 32, "video": clips},
        skip_mm_profiling=True,
        worker_extension_cls="agentic_video.training.engines.vllm_cpu.CpuWorkerExtension",
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor",
    )
    engine = AsyncLLM.from_engine_args(arguments)
    try:
        yield engine
    finally:
        engine.shutdown()


@contextmanager
def vllm_server(checkpoint: str | Path, log: Path, max_model_len: int = 640) -> Iterator[str]:
    """``vllm serve`` of a checkpoint under the name ``tiny``; yields its address, ``http://127.0.0.1:PORT/v1``."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {
        "model": str(checkpoint),
        "port": str(port),
        "host": "127.0.0.1",
        "served-model-name": "tiny",
        "dtype": "float32",
        "max-model-len": str(max_model_len),
        "max-num-seqs": "16",
        "limit-mm-per-prompt": '{"image": 32, "video": 0}',
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    command += [word for name, value in options.items() for word in (f"--{name}", value)]
    with log.open("w") as file:
        environment = {**os.environ, **COMMON_ENV, **LAPTOP_ENV}
        server = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            assert server.poll() is None, log.read_text()[-3000:]
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        else:
            raise AssertionError(log.read_text()[-3000:])
        yield f"{address}/v1"
    finally:
        server.terminate()
        server.wait(60)
