"""Compares our numbers with the hardware's counters and prints the tables of docs/explanation/accuracy.md.

    python tests/device/compare.py FOLDER [--golden FILE] [--cases FILE]

FOLDER is what run_suite.py wrote. ``--golden`` rewrites the kernels that the CPU tests check
(tests/golden/h200_ncu_suite.csv), ``--cases`` the sums of each case (h200_ncu_cases.csv beside it).
"""

import argparse
import csv
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # not installed: the checkout

from measured import Kernel, checks, kernels

LOW, HIGH = 0.75, 1.35
GOLDEN = ("name", "family", "aten", "dtype", "seen", "role")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--golden", type=Path)
    parser.add_argument("--cases", type=Path, help="rewrite the sums of each case")
    options = parser.parse_args()
    rows = kernels(options.folder)
    wanted = checks(options.folder)
    _tensor_cores([row for row in rows if row.ns])
    _flops(_by_case(rows), wanted)
    _bytes(_by_case(rows), wanted)
    _alone([row for row in rows if (row.ns is None) != (not row.ours) and row.ours.get("kind") == "kernel"])
    if options.golden:
        _write_golden(options.golden, [row for row in rows if row.ns])
    if options.cases:
        _write_cases(options.cases, _by_case(rows))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def truth(row: Kernel) -> tuple[str, str]:
    """Whether the tensor cores worked, and the precision of most of their operations."""
    return ("1", max(row.seen, key=lambda word: row.seen[word])) if row.seen else ("0", "")


def agrees(row: Kernel) -> bool:
    """``-`` says that the op has no matrix product: right where the counters are 0."""
    used, precision = truth(row)
    return row.ours["tcprec"] == precision and (row.ours["tc"] == used or (row.ours["tc"] == "-" and used == "0"))


def _tensor_cores(rows: Sequence[Kernel]) -> None:
    names = {row.name for row in rows}
    wrong = {row.name: row for row in rows if not agrees(row)}
    _say("## Tensor cores\n")
    _say(f"{len(names) - len(wrong)} of {len(names)} distinct kernels agree ({len(rows)} launches).\n")
    kinds = Counter(truth(row)[1] or "none" for row in {row.name: row for row in rows}.values())
    _say("| precision | distinct kernels |\n|---|---|")
    for kind, count in kinds.most_common():
        _say(f"| {kind} | {count} |")
    for row in wrong.values():
        _say(f"- {row.case}: {row.name[:90]}: ours {row.ours['tc']} {row.ours['tcprec']}, counted {row.seen}")


def _by_case(rows: Iterable[Kernel]) -> dict[str, list[Kernel]]:
    cases: dict[str, list[Kernel]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    return cases


def _flops(cases: dict[str, list[Kernel]], wanted: dict[str, str]) -> None:
    """Of the kernels that used tensor cores: our FLOPs, and the operations executed."""
    found = {}
    for case, rows in cases.items():
        ours, seen = sum(row.flops or 0 for row in rows if row.seen), sum(sum(row.seen.values()) for row in rows)
        if seen:
            found[case] = (ours, seen)
    equal = sum(ours == seen for ours, seen in found.values())
    _say(f"\n## FLOPs\n\n{equal} of {len(found)} cases are equal to the unit.\n")
    _say("| case | ours | executed | ratio |\n|---|---|---|---|")
    for case, (ours, seen) in found.items():
        if "f" in wanted[case] or ours != seen:
            _say(f"| {case} | {ours:,} | {seen:,} | {seen / ours if ours else 0:.4f} |")


def _bytes(cases: dict[str, list[Kernel]], wanted: dict[str, str]) -> None:
    found = {case: _traffic(rows) for case, rows in cases.items() if "b" in wanted[case]}
    found = {case: both for case, both in found.items() if both[1]}
    near = sum(ours > 0 and LOW <= dram / ours <= HIGH for ours, dram in found.values())
    _say(f"\n## Bytes\n\n{near} of {len(found)} cases lie within {LOW} to {HIGH}.\n")
    _say("| case | ours, MB | DRAM, MB | ratio |\n|---|---|---|---|")
    for case, (ours, dram) in found.items():
        _say(f"| {case} | {ours / 1e6:,.1f} | {dram / 1e6:,.1f} | {f'{dram / ours:.3f}' if ours else 'unknown'} |")


def _traffic(rows: Sequence[Kernel]) -> tuple[int, int]:
    """Ours and the DRAM's, of the kernels: ncu measures no copies and memsets. 0: a main kernel's are not known."""
    measured = [row for row in rows if row.ns]
    if any(row.bytes is None and row.ours["role"] == "main" for row in measured):
        return 0, sum((row.read or 0) + (row.write or 0) for row in measured)
    return sum(row.bytes or 0 for row in measured), sum((row.read or 0) + (row.write or 0) for row in measured)


def _alone(rows: Sequence[Kernel]) -> None:
    if rows:
        _say("\n## Seen by one profiler only\n")
    for row in rows:
        _say(f"- {row.case}: {row.name[:100]}")


def _write_golden(file: Path, rows: Sequence[Kernel]) -> None:
    """One line a distinct kernel, op and dtype. ``seen``: operations by precision."""
    lines = {}
    for row in rows:
        dtype = row.ours["dtypes"].split('"')[1] if '"' in row.ours["dtypes"] else ""
        key = (row.name, row.ours["family"], row.ours["aten"], dtype)
        lines.setdefault(key, (*key, truth(row)[1], row.ours["role"]))
    with file.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(GOLDEN)
        writer.writerows(sorted(lines.values()))


def _write_cases(file: Path, cases: dict[str, list[Kernel]]) -> None:
    """A line a case: FLOPs of the kernels that used tensor cores, operations executed, bytes, DRAM traffic, time."""
    with file.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("case", "kernels", "tensor_core_flops", "executed", "bytes", "dram_bytes", "ns"))
        for case, rows in cases.items():
            measured = [row for row in rows if row.ns]
            flops = sum(row.flops or 0 for row in measured if row.seen)
            executed = sum(sum(row.seen.values()) for row in measured)
            nbytes, dram = _traffic(rows)
            ns = sum(row.ns or 0 for row in measured)
            writer.writerow((case, len(measured), flops, executed, nbytes or "", dram, ns))


if __name__ == "__main__":
    main()
