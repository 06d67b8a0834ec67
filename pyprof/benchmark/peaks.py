"""``pyprof peaks``: measure what this machine reaches, for ``--peaks`` and to compare with data sheets.

torch is imported when the measuring begins: ``pyprof peaks --help`` does without it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof.benchmark.measure import FULL, QUICK, Bench, Curve, Multiplied, memory_rate
from pyprof.command.envelope import Parser, add_json, envelope, fail, write_envelope
from pyprof.command.frame import add_force, check_standard_output
from pyprof.command.json_schema import Schema, integer, listing, mapping, number, record, text
from pyprof.errors import PyprofError, require
from pyprof.files import check_output, open_output
from pyprof.prof.limits.architectures import unit_of

if TYPE_CHECKING:
    from rich.table import Table

FORMAT, VERSION = "pyprof peaks", 1


def build_parser() -> Parser:
    parser = Parser(
        prog="pyprof peaks",
        description="Measure what this machine reaches: matrix products per dtype, memory from the caches outwards, "
        "element-wise ops, links. Random data, no change of clocks; a minute or two.",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write figures and curves as JSON, to be given to --peaks"
    )
    add_force(parser, "files")
    parser.add_argument("--device", default="", metavar="DEVICE",
                        help="cuda, cuda:1, cpu (without: cuda where there is one)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="fewer sizes and trials: sooner and rougher")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the curves (needs matplotlib)")
    add_json(parser)
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress on standard error")
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    args = parser.parse_args(argv)
    check_standard_output(parser, args, "file")
    try:
        _main(args)
    except PyprofError as error:
        return fail("pyprof peaks", error, args.json)
    return 0


def _main(args: argparse.Namespace) -> None:
    for file in (args.output, args.plot):
        if file:
            check_output(file, args.force)  # before minutes of work
    require("torch", "measuring needs it: install PyTorch for this machine")
    if args.plot:
        require("matplotlib", "--plot needs it: pip install matplotlib")
    show = not args.quiet and sys.stderr is not None and sys.stderr.isatty()
    found = measure(_device(args.device), quick=args.quick, progress=show)
    if args.output != "-" and not args.json:
        print_peaks(found)
    if args.output:
        with open_output(args.output, args.force) as out:
            out.write((json.dumps(found, indent=1) + "\n").encode())
    if args.plot:
        plot(found, args.plot, args.force)
    if args.json:
        with open_output(None) as out:
            write_envelope(envelope("peaks", found), out)


def _device(name: str) -> str:
    """The device to measure. Raises PyprofError where torch has no such device."""
    import torch

    there = torch.cuda.is_available()
    if not name:
        return "cuda" if there else "cpu"
    kind, _, number = name.partition(":")
    if kind not in ("cuda", "cpu") or (number and not number.isdecimal()):
        raise PyprofError(f"--device: expected cuda, cuda:N or cpu, found {name[:40]!r}")
    if kind == "cuda" and (not there or int(number or 0) >= torch.cuda.device_count()):
        count = torch.cuda.device_count() if there else 0
        raise PyprofError(f"--device {name}: torch sees {count} GPUs here; try --device cpu")
    return name


def measure(device: str, *, quick: bool = False, progress: bool = False) -> dict[str, Any]:
    """Everything, as a peaks file has it."""
    with _Progress(progress) as say:
        bench = Bench(device, QUICK if quick else FULL, say)
        facts = bench.facts()
        products = list(bench.products())
        memory = bench.memory()
        elementwise = bench.elementwise()
        links = bench.links()
    return document(facts, products, memory, elementwise, links)


class _Progress:
    """One line on standard error that says what is being measured."""

    def __init__(self, show: bool) -> None:
        self.show = show

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, text: str) -> None:
        if self.show:
            sys.stderr.write(f"\r\x1b[Kpyprof peaks: {text}")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self.show:
            sys.stderr.write("\r\x1b[K")


def document(
    facts: Mapping[str, Any],
    products: Iterable[Multiplied],
    memory: Mapping[str, Curve],
    elementwise: Mapping[str, Mapping[str, float]],
    links: Mapping[str, float],
) -> dict[str, Any]:
    """The content of a peaks file: ``flop_per_s`` by unit and ``byte_per_s`` are what ``--peaks`` reads.

    ``lasting_flop_per_s`` is what is left of the products' rates after half a second of nothing else.
    """
    products = list(products)
    curves = {found.product.name: found.curve for found in products if found.curve}
    skipped = {found.product.name: found.why for found in products if found.why}
    best = {name: max(rate for _, rate in curve) for name, curve in curves.items()}
    units = ((unit_of(name, str(facts["arch"])), rate) for name, rate in best.items())
    found: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        **facts,
        "flop_per_s": {unit: _rounded(rate) for unit, rate in units if unit},
    }
    lasting = {unit_of(of.product.name, str(facts["arch"])): of.lasting for of in products if of.lasting is not None}
    found["lasting_flop_per_s"] = {unit: _rounded(rate) for unit, rate in lasting.items() if unit}
    rate = memory_rate(dict(memory), int(facts["cache_bytes"]))
    if rate is not None:
        found["byte_per_s"] = _rounded(rate)
    found["link_byte_per_s"] = {name: _rounded(rate) for name, rate in links.items()}
    found["curves"] = {
        "products_flop_per_s": {name: _curve(curve) for name, curve in curves.items()},
        "memory_byte_per_s": {name: _curve(curve) for name, curve in memory.items()},
        "elementwise_byte_per_s": {d: {op: _rounded(r) for op, r in rates.items()} for d, rates in elementwise.items()},
    }
    found["skipped"] = skipped
    return found


def _schema() -> Schema:
    """Of a peaks file within the envelope."""
    rate = number("of a peak")
    pair: list[Schema] = [number("size"), number("rate")]
    point: Schema = {"type": "array", "description": "size, rate", "prefixItems": pair, "items": False}
    points = listing(point, "rising sizes")
    curves = {
        "products_flop_per_s": mapping(points, "by dtype: rows of the square matrices, FLOP/s"),
        "memory_byte_per_s": mapping(points, "by op: bytes moved, bytes/s"),
        "elementwise_byte_per_s": mapping(mapping(rate, "by op"), "by dtype: bytes/s of each op"),
    }
    return record(
        {
            "format": {"const": FORMAT, "description": "what --peaks knows the file by"},
            "version": {"const": VERSION, "description": "of the file's form"},
            "device": text("its name"),
            "arch": text("sm_90, gfx942, cpu"),
            "torch": text("its version"),
            "sms": integer("multiprocessors; GPUs only"),
            "memory_bytes": integer("of the GPU", "bytes"),
            "threads": integer("that torch uses; CPUs only"),
            "cache_bytes": integer("of the last cache before memory", "bytes"),
            "flop_per_s": mapping(rate, "the best of each unit, FLOP/s"),
            "byte_per_s": number("of the memory, beyond the caches", "bytes/s"),
            "lasting_flop_per_s": mapping(rate, "of products under a lasting load, by unit, FLOP/s"),
            "link_byte_per_s": mapping(rate, "of copies, by where from and to, bytes/s"),
            "curves": record(curves, "each figure by size"),
            "skipped": mapping(text("why"), "products that could not be measured"),
        },
        "peaks",
        optional=("sms", "memory_bytes", "threads", "byte_per_s"),
    )


SCHEMAS = {"peaks": _schema}


def _rounded(rate: float) -> float:
    """Four digits: more were noise."""
    return float(f"{rate:.4g}")


def _curve(curve: Curve) -> list[list[float]]:
    return [[size, _rounded(rate)] for size, rate in curve]


# Printing


def print_peaks(found: Mapping[str, Any]) -> None:
    """Tables on standard output."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_title(found))
    for table in _tables(found):
        console.print(table)
    for name, why in found["skipped"].items():
        console.print(f"{name}: not measured: {why}", markup=False)


def _title(found: Mapping[str, Any]) -> str:
    sms = f", {found['sms']} SMs" if "sms" in found else f", {found.get('threads', '?')} threads"
    cache = f", last cache {found['cache_bytes'] / 2**20:.0f} MiB"
    return f"{found['device']} ({found['arch']}{sms}{cache}), torch {found['torch']}"


def _tables(found: Mapping[str, Any]) -> Iterator[Table]:
    sheet = _data_sheet(found)
    curves = found["curves"]
    rows: list[tuple[str, ...]] = []
    for dtype, curve in curves["products_flop_per_s"].items():
        size, rate = max(curve, key=lambda point: point[1])
        unit = unit_of(dtype, found["arch"])
        lasting = found["lasting_flop_per_s"].get(unit)
        lasts = "" if lasting is None else f"{lasting / 1e12:.4g}"
        against = _against(rate, sheet.get(unit), 1e12)
        rows.append((dtype, unit, f"{rate / 1e12:.4g}", f"{size:.0f}", lasts, *against))
    header = ("dtype", "unit", "TFLOP/s", "size", "lasting", "data sheet", "%")
    yield _table("Products of square matrices", header, rows)
    rows = []
    for name, curve in curves["memory_byte_per_s"].items():
        if not curve:
            continue
        peak_bytes, peak = max(curve, key=lambda point: point[1])
        rate = memory_rate({name: [(int(n), r) for n, r in curve]}, found["cache_bytes"]) or 0.0
        rows.append((name, f"{peak / 1e9:.4g}", _size(peak_bytes), f"{rate / 1e9:.4g}",
                     *_against(rate, sheet.get("bytes"), 1e9)))  # fmt: skip
    yield _table("Memory", ("op", "best GB/s", "bytes moved", "memory GB/s", "data sheet", "%"), rows)
    rates = curves["elementwise_byte_per_s"]
    ops: Mapping[str, float] = next(iter(rates.values()), {})
    yield _table("Element-wise ops, GB/s", ("op", *rates), [
        (op, *(f"{of[op] / 1e9:.4g}" for of in rates.values())) for op in ops])  # fmt: skip
    if found["link_byte_per_s"]:
        links = [(name.replace("_", " "), f"{rate / 1e9:.4g}") for name, rate in found["link_byte_per_s"].items()]
        yield _table("Links", ("from, to", "GB/s"), links)


def _data_sheet(found: Mapping[str, Any]) -> dict[str, float]:
    """What the table of devices says of this one."""
    from pyprof.prof.limits.devices import find_device

    device = find_device(found["device"]) if found["arch"] != "cpu" else None
    if device is None:
        return {}
    return {**device.flop_per_s, **({} if device.byte_per_s is None else {"bytes": device.byte_per_s})}


def _against(rate: float, sheet: float | None, scale: float) -> tuple[str, str]:
    return ("", "") if sheet is None else (f"{sheet / scale:.4g}", f"{100 * rate / sheet:.0f}")


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**20:.0f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.0f} KiB"


def _table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for i, name in enumerate(header):
        table.add_column(name, justify="left" if i == 0 or name == "unit" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def plot(found: Mapping[str, Any], file: str, force: bool) -> None:
    """The growth curves as a picture (``pyprof plot growth``): products by size, memory by bytes."""
    from pyprof.prof.plot import growth
    from pyprof.prof.plot.style import FORMATS, Look, save

    form = Path(file).suffix[1:].lower()
    with open_output(file, force) as out:
        save(growth.draw(growth.numbers(found), Look()), out, form if form in FORMATS else "png")
