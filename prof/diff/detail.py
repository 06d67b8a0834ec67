"""Layers or shapes that only one capture has are left out of both; otherwise the rows would not match."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pyprof.prof.diff.lines import Kernel, Line

Lines = tuple[Line, ...]
Change = Callable[[Line], Line]


def common_detail(a: Lines, b: Lines) -> tuple[Lines, Lines, tuple[str, ...]]:
    """The lines of both sides with the details that both sides have, and the names of the details left out."""
    left_out = []
    if _one_without_numbers(a, b):
        left_out.append("autograd's sequence numbers")
        a, b = (_without(lines, _by_aten_op) for lines in (a, b))
    for name, has, without in DETAILS:
        has_detail = [any(map(has, lines)) for lines in (a, b)]
        if has_detail[0] != has_detail[1]:
            left_out.append(name)
            a, b = (_without(lines, without) for lines in (a, b))
    return a, b, tuple(left_out)


def _without(lines: Lines, change: Change) -> Lines:
    """The changed lines; lines that became equal are merged."""
    groups: dict[object, list[Line]] = {}
    for line in map(change, lines):
        groups.setdefault((line.place, line.shapes), []).append(line)
    return tuple(members[0] if len(members) == 1 else _sum(members) for members in groups.values())


def _sum(lines: Sequence[Line]) -> Line:
    longest = max(lines, key=lambda line: float(line.ns.sum()))
    return replace(
        longest,
        ns=sum((line.ns for line in lines[1:]), lines[0].ns),
        count=sum(line.count for line in lines),
        kernels=merged_kernels(lines, lambda kernel: kernel.same),
    )


def merged_kernels(lines: Iterable[Line], same: Callable[[Kernel], str]) -> tuple[Kernel, ...]:
    """The kernels of all lines, merged by ``same``, the longest first."""
    found: dict[tuple[str, str], Kernel] = {}
    for line in lines:
        for kernel in line.kernels:
            key = (same(kernel), kernel.tc)
            had = found.get(key)
            found[key] = replace(kernel, count=had.count + kernel.count, ns=had.ns + kernel.ns) if had else kernel
    return tuple(sorted(found.values(), key=lambda kernel: (-kernel.ns, kernel.name)))


def _one_without_numbers(a: Lines, b: Lines) -> bool:
    """Whether the backward pass of one side has the names of forward ops, and that of the other side has none of them.

    A compiled graph has no such ops on either side.
    """
    backward = [[line for line in lines if line.place.dir == "bprop" and line.place.aten] for lines in (a, b)]
    named = [any(map(_by_forward_op, lines)) for lines in backward]
    return all(backward) and named[0] != named[1] and not any(line.fused for lines in backward for line in lines)


def _by_forward_op(line: Line) -> bool:
    """Whether a line of the backward pass has the name of its forward op, and not that of autograd's node."""
    return line.place.dir == "bprop" and line.place.op[:1].islower()


def _by_aten_op(line: Line) -> Line:
    """A line of the backward pass under the name of its aten op, which both captures have."""
    place = line.place
    if place.dir != "bprop" or not place.aten:
        return line
    return replace(line, place=replace(place, op=place.aten.removeprefix("aten::")))


DETAILS: tuple[tuple[str, Callable[[Line], bool], Change], ...] = (
    ("layers", lambda line: bool(line.place.layer), lambda line: replace(line, place=replace(line.place, layer=()))),
    ("shapes", lambda line: bool(line.shapes), lambda line: replace(line, shapes="")),
)
