"""Tables as ncu prints them, from literal cells."""

from collections.abc import Sequence
from pathlib import Path

LAUNCH = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size",
          "Grid Size", "Device", "CC")  # fmt: skip
PUSHED = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
STARTED = "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"


def line(cells: Sequence[object]) -> str:
    """A row in which every cell is quoted and no quotation mark is doubled, as ncu prints it."""
    return ",".join(f'"{cell}"' for cell in cells)


def launch(
    ident: object, name: str = "gemm", pid: object = 7, grid: str = "(4, 1, 1)", block: str = "(128, 1, 1)"
) -> list[object]:
    """The first eleven cells of a launch."""
    return [ident, pid, "python", "127.0.0.1", name, 1, 7, block, grid, 0, "9.0"]


def raw(metrics: Sequence[tuple[str, str]], rows: Sequence[Sequence[object]], before: str = "") -> str:
    """A raw page: (metric, unit) of each column, and rows of a launch's cells and its values."""
    header = line([*LAUNCH, *(name for name, _ in metrics)])
    units = line([*[""] * len(LAUNCH), *(unit for _, unit in metrics)])
    return before + "\n".join([header, units, *map(line, rows)]) + "\n"


def write(folder: Path, text: str, name: str = "report.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
