import json
import zipfile
from pathlib import Path

from agentic_video.launch.run_folder import link_model
from agentic_video.report.losses import newest_checkpoint, newest_step, write_losses


def run_folder(folder: Path, metrics: list[dict[str, float]]) -> Path:
    record = {"recipe": "eva", "profile": "laptop", "seconds": 90.0, "peak_bytes": 3 * 2**29}
    (folder / "run.json").write_text(json.dumps(record))
    lines = [json.dumps({"step": step, "data": data}) for step, data in enumerate(metrics, 1)]
    (folder / "metrics-001.jsonl").write_text("\n".join(lines))
    return folder


def saved(folder: Path, step: int, place: str) -> Path:
    checkpoints = folder / "checkpoints"
    found = checkpoints / f"global_step_{step}" / place
    found.mkdir(parents=True)
    (found / "model.safetensors").write_bytes(b"x")
    with zipfile.ZipFile(found.parent / "model_world_size_1_rank_0.pt", "w") as shard:
        shard.writestr("archive/data.pkl", b"x")
    (checkpoints / "latest_checkpointed_iteration.txt").write_text(f"{step}\n")
    return found


def test_losses_and_the_checkpoint_for_the_next_stage(tmp_path: Path) -> None:
    run_folder(tmp_path, [{"train/loss": 2.0}, {"train/loss": 1.5, "val/loss": 1.75}, {"train/loss": 0.25}])
    checkpoint = saved(tmp_path, 3, "huggingface")
    text = write_losses(tmp_path)
    assert text == (tmp_path / "summary.md").read_text()
    assert "# eva, profile laptop" in text and "3 steps in 1.5 minutes, peak memory 1.5 GiB" in text
    assert "| loss | 2.0000 (step 1) | 0.2500 (step 3) |" in text
    assert "| held-out loss | 1.7500 (step 2) | 1.7500 (step 2) |" in text
    assert f"(`MODEL_PATH`): {checkpoint}" in text


def test_an_unfinished_run_has_its_losses_too(tmp_path: Path) -> None:
    run_folder(tmp_path, [{"train/loss": 2.0}])
    (tmp_path / "run.json").write_text(json.dumps({"identity": [], "finished": False}))
    assert f"# {tmp_path.parent.name}, profile unfinished" in write_losses(tmp_path)


def test_the_newest_checkpoint_is_one_with_weights(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) is None
    first = saved(tmp_path, 10, "actor/huggingface")
    assert newest_checkpoint(tmp_path) == first
    (saved(tmp_path, 20, "huggingface") / "model.safetensors").unlink()
    assert newest_checkpoint(tmp_path) is None
    step = newest_step(tmp_path)
    assert step is not None and step.name == "global_step_20"


def test_checkpoints_may_be_elsewhere(tmp_path: Path) -> None:
    run, shared = tmp_path / "run", tmp_path / "shared"
    run.mkdir()
    run_folder(run, [{"train/loss": 2.0}])
    checkpoint = saved(shared, 10, "huggingface")
    assert newest_step(run) is None
    (run / "run.json").write_text(json.dumps({"checkpoints": str(shared / "checkpoints")}))
    assert newest_checkpoint(run) == checkpoint
    link_model(run, checkpoint)
    assert (run / "model" / "model.safetensors").is_file()


def test_a_record_whose_figures_are_no_numbers(tmp_path: Path) -> None:
    run_folder(tmp_path, [{"train/loss": 2.0}])
    (tmp_path / "run.json").write_text('{"seconds": null, "peak_bytes": "x"}')
    text = write_losses(tmp_path)
    said = f"the first: {tmp_path / 'run.json'}: seconds is None, no number."
    assert f"2 lines, files or numbers that can't be read are left out; {said}" in text
    assert "| loss | 2.0000 (step 1)" in text
