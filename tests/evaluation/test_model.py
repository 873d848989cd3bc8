"""Which model is evaluated, what runs it, and how it is sampled."""

import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agentic_video.evaluation.model import (
    ModelOptions,
    ModelSpec,
    engine_of,
    fit_images,
    list_models,
    model_spec,
    require_model,
    served_model,
    turn_seeds,
)
from agentic_video.utils.errors import SetupError
from tests.config.configs import composed
from tests.faulty_server import FaultyServer, Reply, Script, answering


def test_what_runs_a_model(tmp_path: Path) -> None:
    assert engine_of("http://host:8000/v1", "auto") == "chat"
    assert engine_of("owner/name", "auto") == "vllm"
    (tmp_path / "model.safetensors").write_bytes(b"small")
    assert engine_of(str(tmp_path), "auto") == engine_of(str(tmp_path), "vllm") == "vllm"
    (tmp_path / "shards").mkdir()
    with pytest.raises(SetupError, match="model_merger"):
        engine_of(str(tmp_path / "shards"), "auto")
    with pytest.raises(SetupError, match="is an address"):
        engine_of("http://host/v1", "vllm")
    with pytest.raises(SetupError, match="--teacher owner/name"):
        engine_of("owner/name", "chat", "--teacher")


def test_an_engine_of_ones_own_takes_any_model(tmp_path: Path) -> None:
    for model in ("http://host/v1", str(tmp_path), "no such thing"):
        assert engine_of(model, "mine.Engine") == "mine.Engine"
    with pytest.raises(SetupError, match="--engine nonsense: there are auto, vllm, chat, vllm-server"):
        engine_of("owner/name", "nonsense")


@pytest.mark.parametrize("model", ["no-such-folder", "/no/such/folder", "./nothing", "a/b/c", "~/models/x"])
def test_a_folder_that_is_not_there_is_named(model: str) -> None:
    with pytest.raises(SetupError, match=r"^--base .*: no such folder; name that of a checkpoint"):
        engine_of(model, "auto", "--base")


def test_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(SetupError, match=r"^--model .*model\.safetensors: a file; name its folder$"):
        engine_of(str(tmp_path / "model.safetensors"), "auto")


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("", "a run's folder"),
        ("checkpoints", "a folder of verl's"),
        ("checkpoints/global_step_10", "a folder of verl's"),
        ("checkpoints/global_step_10/actor", "a folder of verl's"),
    ],
)
def test_where_the_model_of_a_run_is_is_said(tmp_path: Path, named: str, kind: str) -> None:
    for step in (9, 10):
        folder = tmp_path / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        with pytest.raises(SetupError, match="model_merger"):
            engine_of(str(folder), "auto")
        (folder / "model.safetensors").write_bytes(b"small")
    with pytest.raises(SetupError, match=rf" is {kind}; its model is {folder}$"):
        engine_of(str(tmp_path / named), "auto")
    assert engine_of(str(folder), "auto") == "vllm"
    (tmp_path / "model").symlink_to(folder)
    if not named:
        with pytest.raises(SetupError, match=rf"^--model {tmp_path} is {kind}; its model is {tmp_path}/model$"):
            engine_of(str(tmp_path), "auto")


def test_a_model_that_the_hub_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hub:
        def model_info(self, model: str, timeout: float) -> None:
            if model != "owner/there":
                raise OSError(f"404: no {model}\nmany lines\nof advice")

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    require_model(ModelOptions("owner/there", "vllm"))
    with pytest.raises(SetupError, match=r"^--base owner/name: .* not to be had from the hub: 404: no owner/name$"):
        require_model(ModelOptions("owner/name", "vllm"), "--base")


def test_offline_a_model_must_be_in_the_hub_s_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: True)
    with pytest.raises(SetupError, match=r"hub's cache \(offline\); download it first: hf download owner/name"):
        require_model(ModelOptions("owner/name", "vllm"))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda model, file: f"/cache/{model}/{file}")
    require_model(ModelOptions("owner/name", "vllm"))


def test_what_a_server_is_asked_before_anything_else(serve: Callable[[Script], FaultyServer]) -> None:
    with pytest.raises(SetupError, match=r"^--model http://127\.0\.0\.1:9/v1: no server answers there \(.*refused\)$"):
        served_model("http://127.0.0.1:9/v1", "OPENAI_API_KEY", timeout=2)
    for address in ("http://", "http://[", "http://127.0.0.1:99999/v1"):
        with pytest.raises(SetupError, match="no server answers there"):
            require_model(ModelOptions(address, "chat", "named"))
    # one that answers is enough, whether it has a list or not; without a name it needs one
    url = serve(lambda body, request: Reply("x")).url
    require_model(ModelOptions(url, "chat", "named"))
    with pytest.raises(SetupError, match=r"no list of models there \(HTTP 501\); name one with --base-name"):
        served_model(url, "OPENAI_API_KEY", option="--base", name_option="--base-name")


@pytest.mark.parametrize("address", ["localhost:8000", "127.0.0.1:8000/v1", "my-host.example.org:443/v1/", "[::1]:80"])
def test_an_address_without_its_scheme_is_said_to_be_one(address: str) -> None:
    with pytest.raises(SetupError, match=rf"^--base .*begins with http://{re.escape(address)}$"):
        engine_of(address, "auto", "--base")
    with pytest.raises(
        SetupError, match=rf"^--judge .*: no address of a server; name one as http://{re.escape(address)}$"
    ):
        list_models(address, "OPENAI_API_KEY", option="--judge")


@pytest.mark.parametrize(
    ("status", "body", "below", "why"),
    [
        (404, b"{}", "", "HTTP 404; should the address end in /v1?"),
        (404, b"{}", "/v1", "HTTP 404"),
        (500, b"boom", "", "HTTP 500"),
        (200, b"\n<!doctype html><html>hi</html>", "/ui/", "a web page; should the address end in /v1?"),
        (200, b'{"data": "x"}', "", "another reply"),
        (200, b'{"data": []}', "", "it is empty"),
    ],
)
def test_why_a_server_has_no_list_of_models_is_said(status: int, body: bytes, below: str, why: str) -> None:
    with answering(status, body) as url, pytest.raises(SetupError) as said:
        served_model(url + below, "OPENAI_API_KEY")
    assert str(said.value) == f"--model {url}{below}: no list of models there ({why}); name one with --model-name"


def test_a_refused_key_is_said_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, b'{"data": [{"id": "m"}]}', key="right") as url:
        monkeypatch.setenv("MINE", "wrong")
        with pytest.raises(SetupError, match=r"the server refuses the key in MINE \(HTTP 401\); --api-key-env names"):
            list_models(url, "MINE")
        monkeypatch.delenv("MINE")
        with pytest.raises(SetupError, match=r"asks for a key \(HTTP 401\), and the variable MINE is not set; --api"):
            list_models(url, "MINE")
        monkeypatch.setenv("MINE", " right\n")  # as it is read from a file
        assert list_models(url, "MINE").names == ["m"]
        for key in ("sek\nret", "s\xe9cret", "\udcff"):
            monkeypatch.setenv("MINE", key)
            with pytest.raises(SetupError, match=r"^MINE: no key: ") as said:
                list_models(url, "MINE")
            assert key not in str(said.value)


def test_a_name_that_a_server_does_not_list_is_said_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"m{number}" for number in range(12)]
    with answering(200, json.dumps({"data": [{"id": name} for name in names]}).encode()) as url:
        require_model(ModelOptions(url, "chat", "m11"), "--teacher", "--teacher-name")
        require_model(ModelOptions(url, "chat"), "--teacher", "--teacher-name")
        assert not capsys.readouterr().err
        require_model(ModelOptions(url, "chat", "m"), "--teacher", "--teacher-name")
    said = f"--teacher-name m: {url} lists {', '.join(names[:10])} and 2 more, and none of that name: its requests may"
    assert capsys.readouterr().err == f"{said} all fail\n"
    with answering(200, b'{"data": []}') as url:
        require_model(ModelOptions(url, "chat", "m"), "--teacher", "--teacher-name")
    assert not capsys.readouterr().err


def test_a_server_that_redirects_does_not_send_the_key_elsewhere() -> None:
    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:9/v1/models")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(SetupError, match=r"redirects to http://127\.0\.0\.1:9/v1/models; give the address"):
            list_models(f"http://127.0.0.1:{server.server_port}/v1", "OPENAI_API_KEY")
        server.shutdown()


def test_the_recipe_s_sampling_unless_something_else_is_asked_for() -> None:
    config = composed("videozoomer", "laptop")
    values = config.actor_rollout_ref.rollout.val_kwargs
    spec = model_spec(ModelOptions("m", "mine.Engine"), config)
    assert spec.temperature == (values.temperature if values.do_sample else 0.0)
    assert (spec.engine, spec.model, spec.top_p, spec.seed, spec.vllm) == ("mine.Engine", "m", values.top_p, 0, {})
    asked = model_spec(ModelOptions("m", "mine.Engine", temperature=0.5, top_p=0.25, seed=3), config)
    assert (asked.temperature, asked.top_p, asked.seed) == (0.5, 0.25, 3)


def test_what_a_server_is_told() -> None:
    config = composed("videozoomer", "laptop")
    config.agentic_video.max_turn_tokens = 77
    options = ModelOptions("http://h/v1", "chat", "name", temperature=0.5, top_p=0.25, concurrency=3, api_key_env="KEY")
    chat = model_spec(options, config).chat
    assert (chat.base_url, chat.model, chat.api_key_env, chat.concurrency) == ("http://h/v1", "name", "KEY", 3)
    assert (chat.temperature, chat.max_tokens, chat.fields) == (0.5, 77, {"top_p": 0.25})
    config.agentic_video.max_turn_tokens = 0
    plain = model_spec(ModelOptions("http://h/v1", "chat", "name", top_p=1.0), config).chat
    assert (plain.max_tokens, plain.fields) == (4_096, {})


def test_vllm_gets_the_rollout_s_engine_options_and_room_for_images() -> None:
    config = composed(
        "videozoomer",
        "laptop",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        "actor_rollout_ref.rollout.max_num_seqs=5",
        "++actor_rollout_ref.rollout.engine_kwargs.vllm.seed=7",
        "++actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls=trainers.only",
    )
    spec = model_spec(ModelOptions("m", "vllm"), config)
    assert (spec.vllm["tensor_parallel_size"], spec.vllm["max_num_seqs"], spec.vllm["seed"]) == (2, 5, 7)
    assert "worker_extension_cls" not in spec.vllm
    given = ModelSpec("vllm", "m", vllm={"limit_mm_per_prompt": {"image": 4, "video": 1}})
    assert fit_images(given, 9).vllm["limit_mm_per_prompt"] == {"image": 9, "video": 1}
    assert fit_images(given, 2).vllm["limit_mm_per_prompt"] == {"image": 4, "video": 1}
    # a clip has two frames or more
    assert fit_images(given, 9, clips=True).vllm["limit_mm_per_prompt"] == {"image": 9, "video": 4}
    assert fit_images(ModelSpec("chat", "m"), 9) == ModelSpec("chat", "m")


def test_an_episode_s_seeds_depend_on_it_and_its_turn_alone() -> None:
    def first(spec: ModelSpec, episode: str | None) -> list[int | None]:
        return list(islice(turn_seeds(spec, episode), 3))

    sampled = ModelSpec("vllm", "m", temperature=1.0, seed=1)
    assert first(sampled, "a") == first(sampled, "a") and len(set(first(sampled, "a"))) == 3
    assert all(seed is not None and 0 <= seed < 1 << 31 for seed in first(sampled, "a"))
    assert first(sampled, "a") != first(sampled, "b")
    assert first(sampled, "a") != first(ModelSpec("vllm", "m", temperature=1.0, seed=2), "a")
    nothing = [None, None, None]
    assert first(sampled, None) == first(ModelSpec("vllm", "m"), "a") == nothing
    assert first(ModelSpec("vllm", "m", temperature=1.0, seed=-1), "a") == nothing


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ({"model_type": "qwen2"}, False),
        ({"model_type": "qwen2", "auto_map": {}}, True),  # code of its own, which may see
        ({"model_type": "qwen2_5_vl"}, True),
        ({"model_type": "somebody_s"}, True),
        ([], True),
    ],
)
def test_a_model_of_text_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: object, fits: bool
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(values))
    (tmp_path / "model.safetensors").write_bytes(b"small")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda model, file: str(config))
    for model in (str(tmp_path), "owner/name"):

        def look(model: str = model) -> None:
            require_model(ModelOptions(model, engine_of(model, "auto")))

        if fits:
            look()
            continue
        with pytest.raises(SetupError, match=rf"^--model {model}: its model_type is 'qwen2', a model of text alone"):
            look()
