import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from agentic_video.utils import surroundings
from agentic_video.utils.errors import SetupError
from agentic_video.utils.surroundings import check_vllm_variables, prepare

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def prepared(**variables: str) -> dict[str, str]:
    environment = {"HOME": "/root", **variables}
    prepare(environment)
    return environment


@pytest.mark.parametrize("value", ["", "-1", "none", "void", "NoDevFiles", "-1,0", " "])
def test_a_list_without_gpus_is_one_that_ray_takes(value: str) -> None:
    assert prepared(CUDA_VISIBLE_DEVICES=value)["CUDA_VISIBLE_DEVICES"] == "-1"


@pytest.mark.parametrize("value", ["0", "0,1", "GPU-1234,MIG-5"])
def test_a_list_of_gpus_stays(value: str) -> None:
    assert prepared(CUDA_VISIBLE_DEVICES=value)["CUDA_VISIBLE_DEVICES"] == value
    assert "CUDA_VISIBLE_DEVICES" not in prepared()


def test_lists_of_other_makers_gpus_are_left_out() -> None:
    assert not {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"} & set(
        prepared(HIP_VISIBLE_DEVICES="0", ROCR_VISIBLE_DEVICES="")
    )


@pytest.mark.parametrize("name", surroundings.THREADS)
def test_numbers_of_threads(name: str) -> None:
    for value in ("1", "16", "4,2"):
        assert prepared(**{name: value})[name] == value
    for value in ("", " "):
        assert name not in prepared(**{name: value})
    for value in ("0", "-2", "abc", "1.5", "2 threads", "4,,2"):
        with pytest.raises(SetupError, match=rf"^{name}="):
            prepared(**{name: value})


@pytest.mark.parametrize("address", ["", "local", " "])
def test_what_another_ray_cluster_left_is_not_taken(address: str) -> None:
    left = dict.fromkeys(surroundings.OWN_CLUSTER, "/left")
    assert not {"RAY_ADDRESS", *left} & set(prepared(RAY_ADDRESS=address, **left))
    assert prepared(RAY_ADDRESS="head:6379", **left).keys() >= left.keys()


@pytest.mark.parametrize("name", surroundings.PLUGINS)
def test_a_list_without_this_package_s_plugin_is_refused(name: str) -> None:
    assert prepared(**{name: "other, agentic_video"})
    for value in ("", "other"):
        with pytest.raises(SetupError, match=rf"^{name}="):
            prepared(**{name: value})


def test_import_paths_hold_in_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepared(PYTHONPATH=f"src{os.pathsep}/missing")["PYTHONPATH"] == f"{tmp_path}/src{os.pathsep}/missing"
    (tmp_path / "random.py").write_text("")
    with pytest.raises(SetupError, match="PYTHONPATH"):
        prepared(PYTHONPATH="src" + os.pathsep)


def test_the_cluster_s_head_is_asked_without_the_proxy() -> None:
    environment = prepared(http_proxy="http://proxy:1", RAY_ADDRESS="http://10.1.2.3:8265")
    assert "10.1.2.3" in environment["no_proxy"].split(",")
    assert "auto" not in prepared(http_proxy="http://proxy:1", RAY_ADDRESS="auto")["no_proxy"].split(",")


def test_a_user_without_a_name_needs_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(surroundings.pwd, "getpwuid", unknown)
    environment = {"HOME": "/somewhere"}
    prepare(environment)
    assert environment["USER"]
    with pytest.raises(SetupError, match=r"^HOME: "):
        prepare({})


@pytest.mark.parametrize(("limits", "fits"), [((256, 4096), True), ((256, 1024), True), ((256, 512), False)])
def test_open_files(limits: tuple[int, int], fits: bool) -> None:
    """In a process of its own: a limit can't be raised again."""
    code = "import resource\nfrom agentic_video.utils.errors import SetupError\n"
    code += "from agentic_video.utils.surroundings import allow_open_files\n"
    code += "try:\n  allow_open_files()\nexcept SetupError as error:\n  print(error)\n"
    code += "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limits),
    )
    *said, now = done.stdout.splitlines()
    assert int(now) == (limits[1] if fits else limits[0])
    assert [line[:9] for line in said] == ([] if fits else ["ulimit -n"])


@pytest.mark.parametrize("extra", [{}, {"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "latin-1:strict"}])
def test_names_beyond_ascii_are_read_and_written_on_any_terminal(extra: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "vidéos 录像"
    folder.mkdir()
    code = "import os, subprocess, sys\nfrom pathlib import Path\n"
    code += "from agentic_video.utils.surroundings import use_utf8\nuse_utf8()\n"
    code += "Path(sys.argv[1], 'name.txt').write_text(sys.argv[1])\nprint(sys.argv[1], flush=True)\n"
    code += "subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv[1])', sys.argv[1]], check=True)\n"
    script = tmp_path / "script.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, **ASCII, **extra}
    if not extra:
        environment.pop("PYTHONIOENCODING", None)
    done = subprocess.run([sys.executable, str(script), str(folder)], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert (folder / "name.txt").read_bytes().decode() == str(folder)
    ours, child = done.stdout.splitlines()
    assert child.decode() == str(folder)
    assert ours == (
        str(folder).encode("ascii" if "ascii" in extra.get("PYTHONIOENCODING", "") else "latin-1", "backslashreplace")
        if extra
        else str(folder).encode()
    )


def test_no_variable_of_vllm_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: object, **options: object) -> None:
        raise AssertionError("vLLM was asked")

    monkeypatch.setattr(surroundings.subprocess, "run", run)
    check_vllm_variables({"PATH": "/bin", "VLLM_PORT": ""}, {})
    check_vllm_variables({"VLLM_CPU_KVCACHE_SPACE": "junk"}, {"VLLM_CPU_KVCACHE_SPACE": "1"})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("VLLM_PORT", "tcp://10.0.0.1:80"), ("VLLM_LOGGING_LEVEL", "banana")])
def test_a_variable_that_vllm_cannot_read_is_named(name: str, value: str) -> None:
    environment = {**os.environ, "VLLM_USE_V1": "0", name: value}
    with pytest.raises(SetupError, match=rf"{name}"):
        check_vllm_variables(environment, {})
    check_vllm_variables({**os.environ, "VLLM_USE_V1": "0"}, {})
