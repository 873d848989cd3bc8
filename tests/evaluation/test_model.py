"""The model of an evaluation: checks before anything starts, engine, sampling."""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
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
from tests.faulty_server import Reply, Serve, answering


def key_of_error(act: Callable[[], object], contains: str = "") -> str:
    """Key of the SetupError that a call raises; its one line holds a text."""
    with pytest.raises(SetupError) as caught:
        act()
    assert contains in str(caught.value) and "\n" not in str(caught.value)
    return caught.value.key


def test_an_engine_fits_its_model(tmp_path: Path) -> None:
    assert engine_of("http://host:8000/v1", "auto") == "chat"
    assert engine_of("http://host:8000/v1", "vllm-server") == "vllm-server"
    assert engine_of("owner/name", "auto") == "vllm"
    (tmp_path / "model.safetensors").write_bytes(b"small")
    assert engine_of(str(tmp_path), "auto") == engine_of(str(tmp_path), "vllm") == "vllm"
    (tmp_path / "shards").mkdir()
    assert key_of_error(lambda: engine_of(str(tmp_path / "shards"), "auto"), "verl.model_merger") == "--model"
    assert key_of_error(lambda: engine_of("http://host/v1", "vllm")) == "--model"
    assert key_of_error(lambda: engine_of("owner/name", "chat", "--teacher")) == "--teacher"
    assert key_of_error(lambda: engine_of("owner/name", "nonsense")) == "--engine"


@pytest.mark.parametrize("model", ["http://host/v1", "/", "no such thing"])
def test_a_custom_engine_takes_any_model(model: str) -> None:
    assert engine_of(model, "mine.Engine") == "mine.Engine"


@pytest.mark.parametrize("model", ["no-such-folder", "/no/such/folder", "./nothing", "a/b/c", "~/models/x"])
def test_a_missing_folder_is_named(model: str) -> None:
    assert key_of_error(lambda: engine_of(model, "auto", "--base"), model) == "--base"


@pytest.mark.parametrize("address", ["localhost:8000", "127.0.0.1:8000/v1", "my-host.example.org:443/v1/", "[::1]:80"])
def test_an_address_without_its_scheme_gets_it_in_the_message(address: str) -> None:
    assert key_of_error(lambda: engine_of(address, "auto", "--base"), f"http://{address}") == "--base"
    list_them = lambda: list_models(address, "OPENAI_API_KEY", option="--judge")  # noqa: E731
    assert key_of_error(list_them, f"http://{address}") == "--judge"


def test_a_file_is_no_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.touch()
    key_of_error(lambda: engine_of(str(file), "auto"), f"{file}: a file")


@pytest.mark.parametrize("named", ["", "checkpoints", "checkpoints/global_step_10", "checkpoints/global_step_10/actor"])
def test_the_model_of_a_run_is_named(tmp_path: Path, named: str) -> None:
    for step in (9, 10):
        folder = tmp_path / "checkpoints" / f"global_step_{step}" / "actor" / "huggingface"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        key_of_error(lambda folder=folder: engine_of(str(folder), "auto"), "model_merger")  # type: ignore[misc]
        (folder / "model.safetensors").write_bytes(b"small")
    key_of_error(lambda: engine_of(str(tmp_path / named), "auto"), f"its model is {folder}")
    assert engine_of(str(folder), "auto") == "vllm"
    if not named:
        (tmp_path / "model").symlink_to(folder)
        key_of_error(lambda: engine_of(str(tmp_path), "auto"), f"its model is {tmp_path}/model")


def test_a_model_that_the_hub_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hub:
        def model_info(self, model: str, timeout: float) -> None:
            if model != "owner/there":
                raise OSError(f"404: no {model}\nmany lines\nof advice")

    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: False)
    require_model(ModelOptions("owner/there", "vllm"))
    missing = ModelOptions("owner/name", "vllm")
    assert key_of_error(lambda: require_model(missing, "--base"), "404: no owner/name") == "--base"
    monkeypatch.setattr("huggingface_hub.is_offline_mode", lambda: True)
    key_of_error(lambda: require_model(missing), "hf download owner/name")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda model, file: f"/cache/{model}/{file}")
    require_model(missing)


@pytest.mark.parametrize(
    ("values", "fits"),
    [
        ({"model_type": "qwen2"}, False),
        ({"model_type": "qwen2", "auto_map": {}}, True),  # custom code, which may see
        ({"model_type": "qwen2_5_vl"}, True),
        ({"model_type": "unknown"}, True),
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
        else:
            assert key_of_error(look, "'qwen2'") == "--model"


def test_a_server_must_answer_and_needs_a_list_only_without_a_name(
    serve: Serve,
) -> None:
    for address in ("http://127.0.0.1:9/v1", "http://", "http://[", "http://127.0.0.1:99999/v1"):
        chat = ModelOptions(address, "chat", "named")
        assert key_of_error(lambda chat=chat: require_model(chat), "no server answers there") == "--model"  # type: ignore[misc]
    url = serve(lambda body, request: Reply("x")).url
    require_model(ModelOptions(url, "chat", "named"))
    ask = lambda: served_model(url, "OPENAI_API_KEY", option="--base", name_option="--base-name")  # noqa: E731
    assert key_of_error(ask, "(HTTP 501); name one with --base-name") == "--base"


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
def test_the_reason_for_a_missing_list_of_models(status: int, body: bytes, below: str, why: str) -> None:
    with answering(status, body) as url:
        key_of_error(lambda: served_model(url + below, "OPENAI_API_KEY"), f"({why})")


def test_a_refused_key_is_reported_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(200, b'{"data": [{"id": "m"}]}', key="right") as url:
        monkeypatch.setenv("MINE", "wrong")
        assert key_of_error(lambda: list_models(url, "MINE"), "MINE (HTTP 401)") == "--api-key-env"
        monkeypatch.delenv("MINE")
        assert key_of_error(lambda: list_models(url, "MINE"), "MINE is not set") == "--api-key-env"
        monkeypatch.setenv("MINE", " right\n")  # as it is read from a file
        assert list_models(url, "MINE").names == ["m"]
        for key in ("sek\nret", "s\xe9cret", "\udcff"):
            monkeypatch.setenv("MINE", key)
            with pytest.raises(SetupError) as caught:
                list_models(url, "MINE")
            assert caught.value.key == "MINE" and key not in str(caught.value)


def test_a_name_that_a_server_does_not_list_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"m{number}" for number in range(12)]
    with answering(200, json.dumps({"data": [{"id": name} for name in names]}).encode()) as url:
        require_model(ModelOptions(url, "chat", "m11"), "--teacher", "--teacher-name")
        require_model(ModelOptions(url, "chat"), "--teacher", "--teacher-name")
        assert not capsys.readouterr().err
        require_model(ModelOptions(url, "chat", "m"), "--teacher", "--teacher-name")
    warning = capsys.readouterr().err
    assert warning.startswith(f"--teacher-name m: {url} lists {', '.join(names[:10])} and 2 more")
    with answering(200, b'{"data": []}') as url:
        require_model(ModelOptions(url, "chat", "m"), "--teacher", "--teacher-name")
    assert not capsys.readouterr().err


def test_a_redirect_does_not_carry_the_key_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    target = "http://127.0.0.1:9/v1/models"

    def redirect(handler: BaseHTTPRequestHandler, status: int, *more: Any) -> None:
        respond(handler, 302, *more)
        handler.send_header("Location", target)

    respond = BaseHTTPRequestHandler.send_response
    monkeypatch.setattr(BaseHTTPRequestHandler, "send_response", redirect)
    with answering(200, b"") as url:
        assert key_of_error(lambda: list_models(url, "OPENAI_API_KEY"), target) == "--model"


def test_the_recipes_sampling_is_the_default() -> None:
    config = composed("videozoomer", "laptop")
    values = config.actor_rollout_ref.rollout.val_kwargs
    spec = model_spec(ModelOptions("m", "mine.Engine"), config)
    assert spec.temperature == (values.temperature if values.do_sample else 0.0)
    assert (spec.engine, spec.model, spec.top_p, spec.seed, spec.vllm) == ("mine.Engine", "m", values.top_p, 0, {})
    named = model_spec(ModelOptions("m", "mine.Engine", temperature=0.5, top_p=0.25, seed=3), config)
    assert (named.temperature, named.top_p, named.seed) == (0.5, 0.25, 3)


def test_a_servers_connection_follows_options_and_config() -> None:
    config = composed("videozoomer", "laptop")
    config.agentic_video.max_turn_tokens = 77
    options = ModelOptions("http://h/v1", "chat", "name", temperature=0.5, top_p=0.25, concurrency=3, api_key_env="KEY")
    chat = model_spec(options, config).chat
    assert (chat.base_url, chat.model, chat.api_key_env, chat.concurrency) == ("http://h/v1", "name", "KEY", 3)
    assert (chat.temperature, chat.max_tokens, chat.fields) == (0.5, 77, {"top_p": 0.25})
    config.agentic_video.max_turn_tokens = 0
    plain = model_spec(ModelOptions("http://h/v1", "chat", "name", top_p=1.0), config).chat
    assert (plain.max_tokens, plain.fields) == (4_096, {})


def test_vllm_gets_the_rollouts_engine_options_and_room_for_images() -> None:
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


def test_an_episodes_seeds_depend_on_it_and_its_turn_alone() -> None:
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
