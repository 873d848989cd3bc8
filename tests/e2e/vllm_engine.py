"""Real vLLM on CPUs: an engine for the scripts beside this file, each a process of its own, and a server."""

import asyncio
import os
import socket
import subprocess
import sys
import time
import traceback
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NoReturn

from agentic_video.utils.environment import COMMON_ENV, LAPTOP_ENV


@asynccontextmanager
async def vllm_engine(checkpoint: Path, images: int, clips: int = 0, extension: str = "") -> AsyncIterator[Any]:
    """An engine in float32 for prompts of up to so many images and clips; ``extension`` is a class of its worker."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=str(checkpoint),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=16,
        limit_mm_per_prompt={"image": images, "video": clips},
        skip_mm_profiling=True,
        worker_extension_cls=extension,
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


def run_script(compare: Callable[[Path], Coroutine[Any, Any, None]]) -> NoReturn:
    """Call it with the checkpoint that the command line names; ends the process without waiting for vLLM's threads."""
    try:
        asyncio.run(compare(Path(sys.argv[1])))
        status = 0
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)
