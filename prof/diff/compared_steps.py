"""The steps of a capture that are compared, and the step of each row.

A step lasts as ``pyprof.prof.timing.steps`` says. Its figures are means over the GPUs. Steps that do not represent the
program's steady state are left out:

* Outliers: more than 5 robust standard deviations (1.4826 × the median distance from the median) and more than a tenth
  from the median. These are first steps (that compile or allocate), a short last one (that the capture cut), and at
  most one in 20 of the others. Steps that differ more often belong to the program, such as every fourth step's update.
* The last step, where no mark says when it ends and steps usually end in a wait: the capture does not show how long the
  last wait was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.timing.gpus import devices_of_rows, ends
from pyprof.prof.timing.steps import PHASES, Step, phase_places, steps
from pyprof.prof.timing.timeline import timeline
from pyprof.table.columns import NULL, Bools, Floats, Ints, Table, distinct

FAR = 5 * 1.4826  # times the median distance from the median
LEAST = 0.1  # a step with a smaller relative distance from the median is not an outlier
RARE = 20  # least number of steps per outlier
WAIT = 0.01  # share of a step: with a longer usual wait at its end, the last step is left out

Wanted = Callable[[int], bool]  # whether a step's number was asked for


@dataclass(frozen=True, slots=True)
class Steps:
    """Amounts per step, aligned with ``numbers``, and per row, aligned with the table."""

    numbers: tuple[int | None, ...]  # the steps that count; (None,) if the capture marks no steps and is one
    left_out: tuple[tuple[int, str], ...]  # the others, and why they are left out
    step: Ints  # per row: the index into numbers, or -1
    weight: Floats  # per row: 1 / number of GPUs
    span_ns: Floats
    idle_ns: Floats
    late_ns: Floats  # the part of the idle time that passed before the CPU made the next launch
    phase_ns: Mapping[str, Floats]  # these and idle_ns sum to span_ns
    devices: int
    timed: bool  # whether rows have start times; else a step is the sum of its rows' times
    outside_rows: int  # rows outside of all steps
    outside_ns: int

    def __len__(self) -> int:
        return len(self.numbers)

    def sums(self, group: Ints, groups: int, values: Floats | Ints) -> Floats:
        """The values summed by (group, step) as a mean over the GPUs. Rows of group -1 are left out."""
        sums = np.zeros((groups, len(self)))
        rows = np.flatnonzero((self.step >= 0) & (group >= 0))
        np.add.at(sums, (group[rows], self.step[rows]), values[rows] * self.weight[rows])
        return sums


def find_steps(name: str, table: Table, wanted: Wanted | None = None) -> Steps:
    """The steps of a capture, chosen by ``wanted`` or by the rules above. Raises InputError if none is left."""
    _, owner = devices_of_rows(table)
    on_gpu = table.ints("device") != NULL
    if on_gpu.any() and not on_gpu.all():  # rows without a device are the host's
        owner = np.where(on_gpu, owner, -1)
    found = [step for step in steps(table, owner) if step.owner >= 0]
    if not found:
        return _untimed(table)
    by_number: dict[int | None, list[Step]] = {}
    for step in found:
        by_number.setdefault(step.number, []).append(step)
    open_ended = any(step.mark_ns is None for step in by_number[max(by_number, key=lambda number: number or 0)])
    waits = _waits(table, owner, found) if open_ended else np.zeros(0)
    chosen, left_out = _chosen(name, by_number, waits, wanted)
    place = {**dict.fromkeys(by_number, -1), **{number: i for i, number in enumerate(chosen)}}
    row, outside = _rows(table, owner, place)
    owners = np.array([len(by_number[number]) for number in chosen])
    late = _late(table, owner, [step for step in found if place[step.number] >= 0])

    def means(of: Callable[..., float]) -> Floats:
        return np.array([np.mean([of(step) for step in by_number[number]]) for number in chosen], np.float64)

    return Steps(
        numbers=tuple(chosen),
        left_out=tuple(left_out),
        step=row,
        weight=np.where(row >= 0, 1 / owners[row], 0.0),
        span_ns=means(lambda step: step.span_ns),
        idle_ns=means(lambda step: step.idle_ns),
        late_ns=means(lambda step: late[step.owner, step.number]),
        phase_ns={name: means(lambda step, name=name: step.phase_ns.get(name, 0)) for name in PHASES},
        devices=len({step.owner for step in found}),
        timed=True,
        outside_rows=int(outside.sum()),
        outside_ns=int(table.ints("kDuration")[outside].sum()),
    )


def _untimed(table: Table) -> Steps:
    """One step for a table without start times (PyProf's own net.dict), as long as the sum of its rows' times."""
    duration, place = table.ints("kDuration"), phase_places(table)
    return Steps(
        numbers=(None,),
        left_out=(),
        step=np.zeros(len(table), np.int64),
        weight=np.ones(len(table)),
        span_ns=np.array([float(duration.sum())]),
        idle_ns=np.zeros(1),
        late_ns=np.zeros(1),
        phase_ns={name: np.array([float(duration[place == i].sum())]) for i, name in enumerate(PHASES)},
        devices=1,
        timed=False,
        outside_rows=0,
        outside_ns=0,
    )


def _chosen(
    name: str, by_number: Mapping[int | None, Sequence[Step]], waits: Floats, wanted: Wanted | None
) -> tuple[list[int | None], list[tuple[int, str]]]:
    """The numbers of the steps that count, and the numbers of the other steps with the reason."""
    numbers = [number for number in by_number if number is not None]
    if not numbers:
        return [None], []
    numbers.sort()
    if wanted is not None:
        kept = [number for number in numbers if wanted(number)]
        if not kept:
            raise InputError(name, f"no step was left: it has {_range(numbers)}, and --step asks for others")
        return [*kept], [(number, "not asked for") for number in numbers if not wanted(number)]
    spans = {number: float(np.mean([step.span_ns for step in by_number[number]])) for number in numbers}
    left_out = []
    if len(numbers) > 2 and len(waits) and float(np.median(waits)) > WAIT:
        left_out.append((numbers.pop(), "the capture ends with it"))
    middle = float(np.median([spans[number] for number in numbers]))
    distance = [spans[number] - middle for number in numbers]
    if len(numbers) > 2:
        odd = _odd(distance, max(FAR * float(np.median(np.abs(distance))), LEAST * middle))
        left_out += [(numbers[i], _times_the_median(spans[numbers[i]], middle)) for i in odd]
    gone = {number for number, _ in left_out}
    return [number for number in numbers if number not in gone], sorted(left_out)


def _times_the_median(span: float, middle: float) -> str:
    return f"{span / middle:.2f} times the median step" if middle else "the median step takes no time"


def _odd(distance: Sequence[float], far: float) -> list[int]:
    """The indices of the steps that are outliers, by their distance from the median.

    >>> _odd([200, 0, 0, 20, 0, 0, 20, -60], 10), _odd([0] * 30 + [40] + [0] * 9, 10)
    ([0, 7], [30])
    """
    outside = [abs(d) > far for d in distance]
    low = next((i for i, out in enumerate(outside) if not out), 0)
    high = len(distance)
    while high > low and outside[high - 1] and distance[high - 1] < 0:
        high -= 1
    inner = [i for i in range(low, high) if outside[i]]
    return [*range(low), *(inner if len(inner) * RARE <= high - low else []), *range(high, len(distance))]


def _range(numbers: Sequence[int]) -> str:
    whole = numbers[-1] - numbers[0] + 1 == len(numbers)
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    return f"steps {numbers[0]} to {numbers[-1]}" if whole else f"steps {', '.join(map(str, numbers))}"


def _waits(table: Table, owner: Ints, found: Sequence[Step]) -> Floats:
    """For each step except the last: the idle time from its last end to the next step's start, as share of the step."""
    start, number = table.ints("start"), table.ints("step")
    rows = np.flatnonzero((start != NULL) & (number != NULL) & (owner >= 0))
    keys, group = distinct(owner[rows], number[rows])
    last = np.full(len(keys), NULL, np.int64)
    np.maximum.at(last, group, ends(table)[rows])
    end = dict(zip(keys, last.tolist(), strict=True))
    starts = {(step.owner, step.number): step.start_ns for step in found}
    shares = [
        max(following - end[step.owner, step.number], 0) / max(step.span_ns, 1)
        for step in found
        if step.number is not None
        and (step.owner, step.number) in end  # not one that launched nothing
        and (following := starts.get((step.owner, step.number + 1))) is not None
    ]
    return np.array(shares, np.float64)


def _rows(table: Table, owner: Ints, place: Mapping[int | None, int]) -> tuple[Ints, Bools]:
    """The place of each row's step among those that count (-1: another step or none), and which rows are in no step."""
    if None in place:
        row = np.where(owner >= 0, 0, -1).astype(np.int64)
        return row, row < 0
    number = table.ints("step")
    values, inverse = np.unique(number, return_inverse=True)
    index = np.array([place.get(int(value), -1) for value in values], np.int64)
    known = np.isin(number, np.array(list(place), np.int64))
    return np.where(owner >= 0, index[inverse.reshape(-1)], -1), ~known | (owner < 0)


def _late(table: Table, owner: Ints, found: Sequence[Step]) -> dict[tuple[int, int | None], float]:
    """The part of each step's idle time that passed before the CPU made the next launch."""
    time = timeline(table)
    gaps = np.flatnonzero(time.late_ns > 0)
    gaps = gaps[np.argsort(table.ints("start")[gaps], kind="stable")]
    sums: dict[tuple[int, int | None], float] = {}
    for number in {step.owner for step in found}:
        mine = gaps[owner[gaps] == number]
        begin = table.ints("start")[mine] - time.idle_ns[mine]
        end = begin + time.late_ns[mine]
        for step in (step for step in found if step.owner == number):
            low, high = step.start_ns, step.start_ns + step.span_ns
            inside = slice(int(np.searchsorted(end, low, "right")), int(np.searchsorted(begin, high)))
            late = np.minimum(end[inside], high) - np.maximum(begin[inside], low)
            sums[number, step.number] = min(float(late.sum()), float(step.idle_ns))
    return sums
