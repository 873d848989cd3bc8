"""A real vLLM engine on CPUs for the scripts beside this file, each of which is a process of its own."""

import asyncio
import os
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn


@asynccontextmanager
async def vllm_engine(checkpoint: Path, images: int, clips: int = 0) -> AsyncIterator[Any]:
    """An engine in float32 for prompts of up to so many images and clips; it is shut down at the end."""
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
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor",
    )
    engine = AsyncLLM.from_engine_args(arguments)
    try:
        yield engine
    finally:
        engine.shutdown()


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
