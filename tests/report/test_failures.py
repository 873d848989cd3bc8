import json
from pathlib import Path

from agentic_video.report.failures import SHOWN, failures_text


def test_videos_by_how_often_they_failed(tmp_path: Path) -> None:
    assert failures_text(tmp_path) == []
    rows = [{"row": f"r{video}", "video": f"/v{video}", "error": "slow"} for video in (1, 2, 2)]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "failed_000001.jsonl").write_text("\n".join(lines[:2]) + "\n", encoding="utf-8")
    (tmp_path / "failed_000007.jsonl").write_text(lines[2] + '\n{"vid\n{}\n', encoding="utf-8")
    found = failures_text(tmp_path)
    assert len(found) == 3 and "/v1" in found[2] and "r1" in found[2]
    assert found[0].startswith("/v2: 2,") and "row r2: slow" in found[0]
    assert found[1].startswith("unknown: 2,")
    many = [json.dumps({"row": "r", "video": f"/w{number}", "error": "slow"}) for number in range(9)]
    (tmp_path / "failed_000008.jsonl").write_text("\n".join(many), encoding="utf-8")
    assert len(failures_text(tmp_path)) == SHOWN + 1
