"""docs/walkthrough.md, literally: its commands in order, on three videos and a dozen questions of one's own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import pytest

from agentic_video.report.metrics import read_metrics, series

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "walkthrough.md"

QUESTIONS = {
    "kitchen": [
        ("What does she take out of the drawer?", ("a knife", "a spoon", "a whisk", "a towel"), "C"),
        ("What is on the stove at 00:12?", ("a pan", "a pot", "nothing", "a kettle"), "A"),
        ("How many people are in the kitchen?", ("one", "two", "three", "four"), "B"),
        ("What colour is the apron?", ("red", "blue", "green", "white"), "D"),
    ],
    "street": [
        ("Which vehicle passes first?", ("a bus", "a bicycle", "a taxi", "a tram"), "A"),
        ("What is the weather like?", ("sunny", "rainy", "snowy", "foggy"), "B"),
        ("Who crosses the street?", ("a child", "a dog", "a couple", "nobody"), "C"),
        ("What does the sign say?", ("stop", "yield", "one way", "closed"), "A"),
    ],
    "garden": [
        ("What grows by the fence?", ("roses", "tomatoes", "ivy", "nothing"), "B"),
        ("What does he carry?", ("a rake", "a hose", "a bucket", "a ladder"), "C"),
        ("Where is the cat?", ("on the wall", "under the table", "in the tree", "on the roof"), "A"),
        ("What happens at the end?", ("it rains", "he leaves", "the dog barks", "the gate opens"), "D"),
    ],
}
SPLITS = {"train": "kitchen", "val": "street", "test": "garden"}

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]


def write_video(path: Path, seconds: int, seed: int) -> None:
    """An H.264 file as a phone writes it: 25 frames a second, colours that move."""
    picture = np.random.default_rng(seed).integers(0, 255, (15, 20, 3), np.uint8).repeat(16, 0).repeat(16, 1)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for index in range(25 * seconds):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 3 * index, 1), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def blocks() -> list[str]:
    """The page's commands: its bash blocks, in order."""
    return re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one's own with data, after all commands of the page."""
    folder = tmp_path_factory.mktemp("mine")
    (folder / "data" / "videos").mkdir(parents=True)
    for number, (name, seconds) in enumerate((("kitchen", 30), ("street", 40), ("garden", 25))):
        write_video(folder / "data" / "videos" / f"{name}.mp4", seconds, number)
    for split, name in SPLITS.items():
        rows = [
            {
                "id": f"{name}-{number}",
                "data_source": "mine",
                "video": f"videos/{name}.mp4",
                "question": question,
                "options": options,
                "answer": answer,
            }
            for number, (question, options, answer) in enumerate(QUESTIONS[name])
        ]
        (folder / "data" / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    # As the clone's folder looks from where the commands are typed.
    (folder / "recipes").symlink_to(REPOSITORY / "recipes")
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").write_text(f"PATH={Path(sys.executable).parent}:$PATH\n")
    names = ("VERL_PLATFORM", "OUTPUT_DIR", "MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "RAY_ADDRESS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    script = "set -euo pipefail\nset -x\n" + "\n".join(blocks())
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**environment, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as shell:
        assert shell.stdout is not None
        for line in shell.stdout:
            print(line, end="", flush=True)
    assert shell.returncode == 0
    return folder


def test_all_demonstrations_are_kept(folder: Path) -> None:
    kept = (folder / "data" / "distilled" / "kept.jsonl").read_text().splitlines()
    assert len(kept) == 4
    assert (folder / "data" / "distilled" / "episodes.html").stat().st_size > 10_000


def test_sft_learns_them(folder: Path) -> None:
    run = folder / "outputs" / "videozoomer-sft-laptop" / "run-001"
    losses = series(read_metrics(run), "train/loss")[1]
    assert losses[-1] < losses[0] / 4
    assert (run / "model" / "config.json").is_file()


def test_grpo_starts_from_the_sft_checkpoint_with_custom_questions(folder: Path) -> None:
    run = folder / "outputs" / "videozoomer-laptop" / "run-001"
    metrics = read_metrics(run)
    assert series(metrics, "episode/reward")[0] == list(range(1, 21))
    assert max(series(metrics, "training/rollout_probs_diff_mean")[1]) < 1e-3
    command = (run / "command.sh").read_text()
    assert f"{folder}/outputs/videozoomer-sft-laptop/run-001/checkpoints" in command
    assert f"{folder}/data/train.jsonl" in command and f"{folder}/data/val.jsonl" in command
    # SFT taught it to look: nearly every episode calls, from the first step on
    assert series(metrics, "episode/tool_calls")[1][0] > 0.5
    assert "val-core/mine/acc/mean@1" in metrics[20]


def test_every_evaluation_has_its_report(folder: Path) -> None:
    evaluations = folder / "outputs" / "videozoomer-eval" / "test"
    reports = sorted(str(file.parent.relative_to(evaluations)) for file in evaluations.rglob("report.json"))
    assert {"agent", "no-tools", "baseline-16"} <= set(reports) and len(reports) == 9
    for report in reports:
        assert json.loads((evaluations / report / "report.json").read_text())["episodes"] == 4
