"""What plan_measured.py measured, in short: python tests/device/plan_truth.py RESULTS OUT

RESULTS has NAME.json of each program, OUT becomes measured.json. Per change: `wall`, the lowest and the highest block,
`gain` with the least and the greatest of its pairs of neighbours (an interval that spans 0 establishes nothing) and
`without`, the step that it is a gain of. All in ms per step. `base` is the unchanged program: measured first, and just
before its capture. `together` is it with all changes that were kept of those of --first, in turns with it.
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def short(found: Row) -> Row:
    rows = [row for row in found["measured"] if "wall" in row]
    failed = [(row["as"], row["change"]) for row in found["measured"] if "wall" not in row]
    base = next(row for row in rows if row["as"] == "base")
    around = found["captures"]["base"] if "captures" in found else {}
    walls = [("first", base["wall_blocks"])]
    walls += [("before", around["wall_before"])] if around else []
    return {
        **{key: found[key] for key in ("program", "limit", "gpu", "torch")},
        "base": [_blocks(when, some) for when, some in walls],
        "alone": [_change(row) for row in rows if row["as"] == "alone"],
        "in_order": [_change(row) for row in rows if row["as"] == "in order"],
        "together": [_change(row) for row in rows if row["as"] == "together"],
        "failed": [" ".join(pair) for pair in dict.fromkeys(failed)],
    }


def _blocks(when: str, walls: list[float]) -> Row:
    return {"when": when, "wall": statistics.median(walls), "low": min(walls), "high": max(walls)}


def _change(row: Row) -> Row:
    found = {key: row[key] for key in ("change", "on", "wall", "host", "peak_mib") if key in row}
    found |= {"low": min(row["wall_blocks"]), "high": max(row["wall_blocks"]), "without": row["wall_without"]}
    found |= {"gain": row["gain"], "gain_low": min(row["gain_pairs"]), "gain_high": max(row["gain_pairs"])}
    return found | ({"kept": row["kept"]} if "kept" in row else {})


def text(programs: list[Row]) -> str:
    """JSON with a line for each measurement."""
    parts = []
    for program in programs:
        lines = []
        for key, value in program.items():
            rows = isinstance(value, list) and value and isinstance(value[0], dict)
            inner = ",\n  ".join(json.dumps(row) for row in value) if rows else ""
            lines.append(f'"{key}": ' + (f"[\n  {inner}]" if rows else json.dumps(value)))
        parts.append("{" + ",\n ".join(lines) + "}")
    return "[\n" + ",\n".join(parts) + "]\n"


if __name__ == "__main__":
    results, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.write_text(text([short(json.loads(path.read_text())) for path in sorted(results.glob("*.json"))]))
