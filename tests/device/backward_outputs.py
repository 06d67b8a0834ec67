"""Backward ops with several outputs on a GPU: FLOPs worked out by hand, bytes against the memory's counters.

    python tests/device/backward_outputs.py --out FOLDER            on the GPU, with ncu on the path: 3 to 5 minutes
    python tests/device/backward_outputs.py --read FOLDER [--golden]

The first command runs every case once under torch.profiler and once under Nsight Compute (DRAM bytes of each kernel,
caches flushed before it). The second one prints ours beside the measured bytes; with ``--golden`` it writes what
tests/prof/work/test_backward_outputs.py checks. The operands of all cases but the first exceed the H200's L2 cache of
60 MB by a factor of two or more.
"""

import argparse
import csv
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]  # not installed: the checkout

GOLDEN = Path(__file__).parents[1] / "golden" / "h200_backward_outputs.csv"
SUITE = Path(__file__).with_name("run_suite.py")
ROWS, WIDE = 65_536, 4096
E = ROWS * WIDE  # 268,435,456 elements: 512 MiB of bf16


def depthwise(images: int, channels: int, side: int) -> int:
    """Both gradients of a 3x3 depthwise convolution: 9 products an element of y each, 2 FLOP a product."""
    return 2 * (2 * images * channels * side * side * 9)


FLOP = {  # by hand: a multiply-add is two; E elements, R rows, C channels or columns
    "depthwise 28x28": 2 * 115_605_504,  # 2 * (2 * 32*256*28*28 * 9): dx and dw
    "depthwise 112x112": depthwise(64, 256, 112),
    "conv2d bias": 2 * (2 * 51_380_224 * 576) + 51_380_224 - 64,  # y 64*64*112*112, 64*9 products; the bias' sums
    "conv2d weight only": 2 * 51_380_224 * 576,
    "conv2d input only": 2 * 51_380_224 * 576,
    "conv2d grouped": 2 * (2 * 51_380_224 * 72),  # y 64*256*56*56, 8*9 products
    "conv2d 1x1 stride 2": 2 * (2 * 102_760_448 * 256),  # y 64*512*56*56, 256 products
    "conv1d bias": 2 * (2 * 134_217_728 * 768) + 134_217_728 - 256,  # y 64*256*8192, 256*3 products
    "conv3d": 2 * (2 * 51_380_224 * 864),  # y 4*32*32*112*112, 32*27 products
    "conv_transpose2d bias": 2 * (2 * 102_760_448 * 128) + 102_760_448 - 32,  # x 64*128*112*112, 32*4; y as large
    "linear bias": 2 * (2 * ROWS * 2048 * 1024) + (ROWS - 1) * 1024,
    "linear weight only": 2 * ROWS * 2048 * 1024,
    "addmm bias": 2 * (2 * 131_072 * 512 * 1024) + 131_071 * 1024,
    "baddbmm": 2 * (2 * 64 * 2048 * 512 * 1024),  # self's gradient is that of the result
    "layer_norm": 13 * E - 2 * WIDE,  # dx 10 E, dweight 2 E - C, dbias E - C
    "layer_norm input only": 10 * E,
    "batch_norm": 9 * E + 256,  # dx with both sums 9 E; rstd * weight
    "group_norm": 13 * E - 2 * 256,
    "rms_norm": 9 * E - WIDE,  # dx 7 E, dweight 2 E - C
    "weight_norm": 5 * 32_768 * 4096 + 3 * 32_768,
    "attention flash": 5 * 2 * 16 * 16 * 2048 * 2048 * 128,  # five products
    "attention cudnn": 5 * 2 * 16 * 16 * 2048 * 2048 * 128,
    "embedding": 524_288 * 128,  # a row is added per index
    "embedding_bag": 1_048_576 * 128,
    "prelu": 3 * E - 256,  # g * w, g * x, and the sums of the second
    "cross_entropy": 4 * 16_384 * 50_304,  # softmax 4 E - R, and R quotients of the loss
    "glu": 8 * E,  # E elements of the gradient
    "mul by a row": 3 * E - WIDE,  # g * w, g * x, and the sums of the second
    "index_select": E,
    "index": E,
    "gather": 16_384 * 4096,
    "scatter_add": 0,  # the source's gradient is gathered, self's is the result's
    "max_pool2d": E // 4,
    # for each of O = 8: dx1 r I J products, 2 r I J, r I; dw r I, 2 r I J, I J; dx2 2 r I J, r J, r J
    "bilinear": 8 * (7 * ROWS * 64 * 64 + 2 * ROWS * 64 + 2 * ROWS * 64 + 64 * 64),
    "LSTM": 2 * (2 * 32 * 4096 * 4 * 512 * (512 + 512)),  # T N 4 H (I + H) products, for both gradients
}


def add() -> None:
    """Add the cases to the suite (``suite.py`` runs them)."""
    from cases_backward import add_cases

    add_cases()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="measure, and write to this folder")
    what.add_argument("--read", type=Path, help="compare what was measured")
    parser.add_argument("--seconds", type=float, default=290, help="begin no case after that")
    parser.add_argument("--golden", action="store_true", help=f"write {GOLDEN.name} and the trace beside it")
    options = parser.parse_args()
    if options.out:
        return _measure(options.out, options.seconds)
    rows = compared(options.read)
    _table(rows)
    if options.golden:
        _write(rows, options.read)
    return 0


def _measure(out: Path, seconds: float) -> int:
    start = time.monotonic()
    command = [
        sys.executable,
        str(SUITE),
        "--out",
        str(out),
        "--groups",
        "backward",
        "--bytes",
        "--seconds",
        str(seconds),
    ]
    code = subprocess.run(command, check=False).returncode
    sys.stdout.write(f"{time.monotonic() - start:.0f} s\n")
    return code


def compared(folder: Path) -> list[dict[str, Any]]:
    """Per case: FLOPs by hand and ours, our bytes, the DRAM's, and the number of kernels whose bytes are unknown."""
    from measured import kernels

    cases: dict[str, list[Any]] = {}
    for kernel in kernels(folder):
        cases.setdefault(kernel.case, []).append(kernel)
    return [_sums(case, rows) for case, rows in cases.items()]


def _sums(case: str, rows: list[Any]) -> dict[str, Any]:
    both = [row for row in rows if row.ns is not None and row.ours]
    return {
        "case": case,
        "kernels": len(rows),
        "hand_flop": FLOP[case.partition(" backward")[0]],
        "flop": sum(row.flops or 0 for row in rows),
        "bytes": sum(row.bytes or 0 for row in both),
        "dram_bytes": sum((row.read or 0) + (row.write or 0) for row in rows),
        "unknown": sum(row.bytes is None or row.flops is None for row in both),
        "one_sided": sum(not row.ours or (row.ns is None and row.ours["kind"] == "kernel") for row in rows),
        "ns": sum(row.ns or 0 for row in rows),
    }


def _table(rows: list[dict[str, Any]]) -> None:
    lines = ["| case | kernels | FLOP by hand | ours | bytes, MB | DRAM, MB | ratio |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        ratio = row["dram_bytes"] / row["bytes"] if row["bytes"] else float("nan")
        wrong = "" if row["flop"] == row["hand_flop"] else f" ({row['flop'] / max(row['hand_flop'], 1):.4f})"
        rest = f" {row['unknown']} unknown" if row["unknown"] else ""
        rest += f" {row['one_sided']} one-sided" if row["one_sided"] else ""
        lines.append(
            f"| {row['case']} | {row['kernels']} | {row['hand_flop']:,} | {row['flop']:,}{wrong} | "
            f"{row['bytes'] / 1e6:,.1f} | {row['dram_bytes'] / 1e6:,.1f} | {ratio:.3f}{rest} |"
        )
    sys.stdout.write("\n".join(lines) + "\n")


def _write(rows: list[dict[str, Any]], folder: Path) -> None:
    """The measured bytes, and the trace without what names the machine."""
    with GOLDEN.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("case", "hand_flop", "dram_bytes", "ns"))
        writer.writerows((row["case"], row["hand_flop"], row["dram_bytes"], row["ns"]) for row in rows)
    with gzip.open(folder / "trace.json.gz", "rt") as file:
        trace = json.load(file)
    kept = {key: trace[key] for key in ("schemaVersion", "deviceProperties", "displayTimeUnit") if key in trace}
    text = json.dumps({**kept, "traceEvents": trace["traceEvents"]}, separators=(",", ":"))
    GOLDEN.with_suffix(".json.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


if __name__ == "__main__":
    sys.exit(main())
