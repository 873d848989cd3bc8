"""The patches of verl, in verl itself where the tests' process loads it."""

import asyncio
import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import torch
import verl.utils.tensordict_utils as tensordict_utils
import zmq
from peft import LoraConfig, get_peft_model
from tensordict import TensorDict
from verl.utils import hf_processor
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightSender

from agentic_video.toyworld.model import ModelRecipe, build_model
from agentic_video.training.seams import patches
from agentic_video.training.seams.__main__ import main
from agentic_video.training.seams.patches import WatchedSocket
from agentic_video.training.seams.table import OVERRIDES, VERL_SEAMS, VLLM_SEAMS, changed, digest
from agentic_video.utils.seam import Seam
from tests.config.configs import composed
from tests.families.processors import QWEN_VL
from tests.toyworld.conftest import tokenizer_of
from tests.training.programs import result_of

CPU_ONLY = pytest.mark.skipif(not patches.on_cpu(), reason="runs where verl runs without GPUs")


@pytest.mark.parametrize("seam", [*VERL_SEAMS, *VLLM_SEAMS], ids=lambda seam: seam.patch.partition(":")[2])
def test_the_installed_packages_are_those_that_the_patches_are_for(seam: Seam) -> None:
    assert seam.sources and not changed(seam.sources)


def test_verls_overridden_definitions_are_those_that_ours_are_for() -> None:
    assert not changed(OVERRIDES)


def test_a_changed_source_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    monkeypatch.setitem(VERL_SEAMS[0].sources, "transfer_queue.interface:init", "0" * 12)  # type: ignore[arg-type]
    assert main() == 1
    assert capsys.readouterr().out.splitlines()[-1].strip() == "transfer_queue.interface:init"
    assert digest("transfer_queue.interface:gone") is digest("no_such_package:f") is None


@pytest.mark.ray
def test_two_jobs_of_one_cluster_have_separate_queues() -> None:
    first, second, then = result_of("tests.training.queues")
    assert (first, second, then) == (["first"], ["second"], ["first"])


@CPU_ONLY
def test_offload_policy_does_not_pin() -> None:
    import torch.distributed.fsdp as fsdp
    import verl  # noqa: F401  (has the patch installed)

    assert fsdp.CPUOffloadPolicy(pin_memory=True).pin_memory is False


@pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 5, 4), (4, 4), (7,), (8, 8), (16, 16, 16, 16)])
def test_rope_positions_of_equally_long_rows(lengths: tuple[int, ...]) -> None:
    rows = [torch.arange(4 * length).reshape(4, length) + 100 * number for number, length in enumerate(lengths)]
    for nested in (
        torch.nested.as_nested_tensor(rows, layout=torch.jagged),
        tensordict_utils.nested_tensor_from_tensor_list(rows, ragged_idx=2),
    ):
        data = TensorDict({"position_ids": nested}, batch_size=len(rows))
        tensordict_utils.maybe_fix_3d_position_ids(data)
        assert [row.tolist() for row in data["position_ids"].unbind()] == [row.tolist() for row in rows]
    flat = TensorDict({"position_ids": torch.arange(6).reshape(2, 3)}, batch_size=2)
    tensordict_utils.maybe_fix_3d_position_ids(flat)
    assert flat["position_ids"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_batch_without_images_goes_through_the_vision_tower(checkpoint: Path) -> None:
    """It changes nothing, and leaves a gradient of zero: all ranks gather the same weights."""
    import verl  # noqa: F401 (loads the plugin)
    from transformers import AutoModelForImageTextToText
    from verl.models.transformers.qwen2_vl import _get_input_embeds

    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).model
    ids = torch.tensor([[5, 6, 7]])
    embedded, _ = _get_input_embeds(model, ids, None, None, None, None, None)
    assert torch.equal(embedded, model.get_input_embeddings()(ids))
    embedded.sum().backward()
    gradients = [weight.grad for weight in model.visual.parameters()]
    assert any(gradient is not None for gradient in gradients)
    assert all(gradient is None or not gradient.any() for gradient in gradients)


@pytest.mark.parametrize("broken", ["processor", "class"])
def test_a_vision_model_without_its_processor_is_refused(broken: str, checkpoint: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint, tmp_path / "copy")
    assert hf_processor(str(folder)) is not None
    file = folder / "processor_config.json"
    values = json.loads(file.read_text())
    if broken == "processor":
        values["image_processor"]["size"] = {"height": 4}
    else:
        values["processor_class"] = "LlavaProcessor"
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=str(folder)):
        hf_processor(str(folder))
    # a text model needs none
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2"}))
    assert hf_processor(str(tmp_path)) is None


@CPU_ONLY
def test_log_probabilities_are_those_of_log_softmax() -> None:
    import verl.utils.torch_functional as torch_functional

    torch.manual_seed(0)
    logits = (torch.randn(7, 11) * 5).requires_grad_()
    labels = torch.randint(11, (7,))
    expected = torch.log_softmax(logits, dim=-1)[torch.arange(7), labels]
    found = torch_functional.logprobs_from_logits(logits, labels)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(value.sum(), logits, retain_graph=True)[0] for value in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_merged_lora_is_what_peft_merges() -> None:
    def make() -> torch.nn.Module:
        torch.manual_seed(1)
        return torch.nn.ModuleDict({"visual": torch.nn.Linear(5, 5), "text": torch.nn.Linear(5, 3)})

    config = LoraConfig(r=2, lora_alpha=6, target_modules=["visual", "text"], exclude_modules=".*visual.*")
    model = get_peft_model(make(), config)
    draw_adapters(model)
    merged = patches.merge_lora(model.state_dict(), 6 / 2)
    expected = model.merge_and_unload().state_dict()
    assert set(merged) == set(expected) == set(make().state_dict())
    assert not torch.equal(merged["text.weight"], make().state_dict()["text.weight"])
    for name, weight in expected.items():
        assert torch.allclose(merged[name], weight, atol=1e-6)
    assert patches.merge_lora({}, 2.0) == {}  # a rank without weights


def draw_adapters(model: torch.nn.Module) -> set[str]:
    """Give adapters random weights; return the names of all that is trained."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    for parameter in trained.values():
        torch.nn.init.normal_(parameter)
    return set(trained)


@pytest.mark.parametrize("family", QWEN_VL)
def test_lora_of_the_recipes(family: str) -> None:
    """The real classes, small: adapters where vLLM applies them, merged under the model's own names."""
    tokenizer = tokenizer_of("videozoomer", family)
    chosen = composed("videozoomer", "laptop", "data.train_files=none").actor_rollout_ref.model
    plain = build_model(tokenizer, ModelRecipe(family=family))
    before = {name: weight.clone() for name, weight in plain.state_dict().items()}
    targets = {"target_modules": chosen.target_modules, "exclude_modules": chosen.exclude_modules}
    model = get_peft_model(plain, LoraConfig(task_type="CAUSAL_LM", r=2, lora_alpha=8, **targets))
    trained = draw_adapters(model)
    assert trained and not any("visual" in name for name in trained)
    mlp = {"glm4v": ("gate_up_proj", "down_proj"), "qwen3_vl_moe": ()}
    linear_attention = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in trained} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", *mlp.get(family, ("gate_proj", "up_proj", "down_proj"))),
        *(linear_attention if family.startswith("qwen3_5") else ()),
        *(("shared_expert_gate",) if family == "qwen3_5_moe" else ()),
    }
    merged = patches.merge_lora(model.state_dict(), 8 / 2)
    assert set(merged) == set(before)
    changed = {name for name, weight in before.items() if not torch.equal(weight, merged[name])}
    assert changed == {name.removeprefix("base_model.model.").split(".lora_")[0] + ".weight" for name in trained}


def test_two_clusters_on_a_machine_have_separate_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from verl.workers.rollout.vllm_rollout import utils

    class ServerAdapter:
        def __init__(self, rank: int):
            job = ray.get_runtime_context().get_job_id()
            self.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{job}-replica-0-rank-{rank}.sock"

    patches.own_weight_socket(SimpleNamespace(ServerAdapter=ServerAdapter))  # type: ignore[arg-type]

    def sockets(node: str) -> tuple[str, str]:
        """What the actor's side and vLLM's take on a node."""
        context = SimpleNamespace(get_job_id=lambda: "01000000", get_node_id=lambda: node)
        monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
        monkeypatch.setenv("VERL_RAY_JOB_ID", patches.unique_job())
        monkeypatch.setenv("VERL_REPLICA_RANK", "0")
        worker = SimpleNamespace(local_rank=1, model_runner=None)
        return ServerAdapter(1).zmq_handle, utils.vLLMColocateWorkerExtension._get_zmq_handle(worker)

    first, second = sockets("ab" * 28), sockets("cd" * 28)
    assert first[0] == first[1] != second[0] == second[1]
    # a name of a socket has 107 characters at most
    assert len(first[0].removeprefix("ipc://")) < 80


def send_weights(load: Callable[[Any], None]) -> None:
    """Send two weights in buckets of a megabyte, as verl's actor does, to an engine that does this with its socket."""

    class Task:
        def __init__(self, handle: str):
            self.handle = handle

        def future(self) -> Future[None]:
            def run() -> None:
                with zmq.Context() as context, context.socket(zmq.REP) as socket:
                    socket.connect(self.handle)
                    load(socket)

            return ThreadPoolExecutor(1).submit(run)

    class ServerAdapter:
        zmq_handle = f"ipc:///tmp/agentic-video-test-{uuid4().hex}.sock"

        async def _execute_method(self, method: str, non_block: bool = False, kwargs: Any = None) -> Task:
            assert (method, non_block, kwargs) == ("update_weights_from_ipc", True, {"use_shm": True})
            return Task(self.zmq_handle)

    module: Any = SimpleNamespace(ServerAdapter=ServerAdapter, BucketedWeightSender=BucketedWeightSender)
    patches.failed_weights(module)

    async def send() -> None:
        adapter = ServerAdapter()
        await adapter._execute_method("update_weights_from_ipc", non_block=True, kwargs={"use_shm": True})
        sender = module.BucketedWeightSender(adapter.zmq_handle, bucket_size_mb=1, use_shm=True)
        await sender.async_send_weights(iter([("a", torch.ones(200_000)), ("b", torch.zeros(200_000))]))

    asyncio.run(send())


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_an_engine_that_fails_to_load_weights_ends_the_wait(answers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedSocket, "LOOK_MS", 20)
    monkeypatch.setattr(WatchedSocket, "LATE_MS", 50)

    def load(socket: Any) -> None:
        for _ in range(answers):
            socket.recv_pyobj()
            socket.send(b"")
        socket.recv_pyobj()
        raise AssertionError("param_data.shape == loaded_weight.shape")

    with pytest.raises(AssertionError, match=r"param_data\.shape"):
        send_weights(load)
    with pytest.raises(RuntimeError, match="loading of weights"):  # one that ends without an answer
        send_weights(lambda socket: socket.recv_pyobj())


def test_a_slow_engine_gets_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedSocket, "LOOK_MS", 20)
    got: list[tuple[list[str], bool]] = []

    def load(socket: Any) -> None:
        socket.recv_pyobj()
        socket.send(b"")
        while not got or not got[-1][1]:
            message = socket.recv_pyobj()
            got.append((list(message["bucket_meta"]), message["is_last"]))
            time.sleep(0.1)
            socket.send(b"")

    send_weights(load)
    assert got == [(["a"], False), (["b"], True)]
