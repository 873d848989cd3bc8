"""Two jobs of one Ray cluster, each with verl's queue of rollouts: what each puts in, and what it then finds there.

Run as a program, it starts a cluster and a second job in it.
"""

import subprocess
import sys

import ray
import torch
from omegaconf import OmegaConf

from tests.training.programs import read_result, report


def queue_of(name: str) -> list[str]:
    import transfer_queue
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    storage = {"num_data_storage_units": 1, "total_storage_size": 100}
    backend = {"storage_backend": "SimpleStorage", "SimpleStorage": storage}
    transfer_queue.init(OmegaConf.create({"backend": backend}))
    fields = list_of_dict_to_tensordict([{"responses": torch.arange(2)}])
    transfer_queue.kv_batch_put(keys=[name], partition_id="train", tags=[{"status": "finished"}], fields=fields)
    return ray.get(found.remote())


@ray.remote
def found() -> list[str]:
    import transfer_queue
    import verl  # noqa: F401  its plugin

    transfer_queue.init()
    return sorted((transfer_queue.kv_list() or {}).get("train", {}))


def main(address: str = "") -> None:
    if address:
        ray.init(address=address, log_to_driver=False)
        report(queue_of("second"))
        return
    started = ray.init(
        "local", num_cpus=16, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20
    )
    first = queue_of("first")
    command = [sys.executable, "-m", __spec__.name, started.address_info["address"]]
    second = read_result(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    report([first, second, ray.get(found.remote())])


if __name__ == "__main__":
    import verl  # noqa: F401  its plugin

    main(*sys.argv[1:])
