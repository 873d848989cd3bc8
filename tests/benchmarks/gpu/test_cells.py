from benchmarks.gpu.cells import FIRST, cells_for, hardly_waits


def test_the_first_cells_are_there_and_short() -> None:
    cells = {cell.name: cell for cell in cells_for("cuda")}
    assert FIRST.keys() <= cells.keys() and not any(cells[name].long for name in FIRST)


def test_waits() -> None:
    assert not hardly_waits({"share": 0.019}) and hardly_waits({"share": 0.021})
