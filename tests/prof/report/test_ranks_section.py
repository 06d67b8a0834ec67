"""The page's heat maps of a job's ranks."""

from typing import Any

import numpy as np

from pyprof.prof.ranks import pace_of_table
from pyprof.prof.ranks.pace_records import Pace
from pyprof.prof.report.ranks_section import MOST, _heat_map, ranks_section
from pyprof.prof.work.annotate import annotate
from pyprof.table.read_table import read_table
from tests.paths import GOLDEN


def pace() -> Pace:
    table = read_table(GOLDEN / "ranks" / "ddp.layers.parquet")
    found = pace_of_table(table, annotate(table))
    assert found is not None
    return found


def shares(heat_map: dict[str, Any]) -> list[list[float]]:
    return [[cell["share"] for cell in row["cells"]] for row in heat_map["rows"]]


def test_the_rank_that_others_wait_for_has_the_pale_line() -> None:
    """Rank 0 has more layers: rank 1 waits for it in each of the three steps."""
    section = ranks_section(pace())
    assert section is not None
    by_step, by_pair = section["maps"]
    assert max(shares(by_step)[0]) < 0.01
    assert min(shares(by_step)[1]) > 0.9
    assert shares(by_pair)[1][0] == 1
    assert by_pair["rows"][1]["cells"][0]["text"].startswith("1 for 0: 7.")


def test_without_matched_collectives_there_is_no_section() -> None:
    assert ranks_section(None) is None


def test_many_ranks_share_lines_which_show_the_longest_of_them() -> None:
    values = np.zeros((1000, 1))
    values[777] = 5e6
    names = [str(number) for number in range(1000)]
    heat_map = _heat_map(values, names, ["0"], ("rank", "step"), "", lambda rank, step: f"rank {rank}")
    assert len(heat_map["rows"]) <= MOST
    [dark] = [row for row in heat_map["rows"] if row["cells"][0]["share"]]
    assert dark["name"] == "770 to 780"  # eleven ranks per line: 70 * 11 = 770
    assert heat_map["longest"] == "5.000 ms"
