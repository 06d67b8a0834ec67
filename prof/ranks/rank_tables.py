"""What one rank says of itself, in tables that merge: its steps, its collectives, its work and its idle time.

Each table is small beside the rank's kernels and has the rank in its first column, so that the tables of many ranks are
put together by appending. ``merged_ranks`` reduces the collectives further.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyprof.prof.timing.blocking_copies import call_places
from pyprof.prof.timing.collectives import working_rows
from pyprof.prof.timing.gpus import devices_of_rows, ends
from pyprof.prof.timing.input_data import input_data
from pyprof.prof.timing.profiler_cost import unprofiled
from pyprof.prof.timing.steps import steps
from pyprof.prof.timing.stragglers import SymmetricCall, symmetric_collectives
from pyprof.prof.timing.timeline import exposed_rows
from pyprof.prof.timing.waiting import CAUSES, DENSE_NS, Waiting, waiting
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.collective_records import Message, messages, size_of, wire_of
from pyprof.prof.work.kinds import COPIES, NCCL, PRODUCTS, kinds
from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints, Table, distinct
from pyprof.table.schema import first_text

IDLE = tuple(f"idle_{cause}_ns" for cause in CAUSES)  # idle time by cause, as prof/timing/waiting.py names it
COLLECTIVE = ("group", "ranks", "step", "sequence", "place", "op")  # the key of one collective of a job
TWO = "send and recv"  # the op of a transfer from one rank to another
ALL_TO_ALL = "all_to_all"
_EXPERT = re.compile(r"(?<!shared_)(?<!shared)experts?(?![a-z])", re.IGNORECASE)  # a shared expert has all tokens
_GROUPED = re.compile(r"grouped_(?:mm|gemm)|group_mm|m_grouped", re.IGNORECASE)
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
MOST_PLACES = 100  # of a rank's idle time by place, the longest

_INT, _TEXT, _FLOAT = pa.int64(), pa.string(), pa.float64()
_KEY = [
    ("group", _TEXT),  # the communicator's name; empty where collectives are not recorded
    ("ranks", _INT),  # how many it has; 0: unknown
    ("step", _INT),  # null where no steps are marked
    ("sequence", _TEXT),  # a digest of the ops that the rank calls in this group and step, in order
    ("place", _INT),  # in that sequence, from 0
    ("op", _TEXT),
]
STEPS = pa.schema(
    [
        ("rank", _INT),
        ("step", _INT),  # null: the capture marks none
        ("span_ns", _INT),
        ("unprofiled_ns", _FLOAT),  # of a step timed before the profiler started; null: none was
        ("work_ns", _INT),  # in which something besides communication and copies from or to the host ran, counted once
        ("kernels", _INT),  # that did it
        ("flops", _INT),  # of those, where they are known
        ("exchanged", _FLOAT),  # bytes that all-to-alls send and receive; NaN: not recorded; 0: no all-to-all
        ("expert_flops", _FLOAT),  # of the experts of a mixture; NaN: not known; 0: no expert ran
        ("copies_ns", _INT),  # in which such copies ran, and no work
        ("comm_ns", _INT),  # in which communication ran, each instant once
        ("exposed_ns", _INT),  # of that, the time in which nothing else ran
        *((name, _INT) for name in IDLE),
    ]
)
COLLECTIVES = pa.schema(
    [
        ("rank", _INT),
        *_KEY,
        ("ns", _INT),  # the kernel's duration
        ("alone_ns", _INT),  # of that, the time in which nothing but collectives ran on this GPU
        ("end_ns", _INT),  # when it ended, by this rank's clock
        ("within", _INT),  # 2: in attention, 1: in the forward pass of another layer, 0: elsewhere
        ("size", _FLOAT),  # bytes of the whole message; NaN: not recorded
        ("wire", _FLOAT),  # bytes that the rank must send
        ("read", _FLOAT),  # bytes of its memory that the collective reads; NaN: not recorded
        ("written", _FLOAT),  # and writes
    ]
)
_WORK = [("op", _TEXT), ("layer", _TEXT), ("phase", _TEXT), ("kind", _TEXT)]  # kind of work: prof/work/kinds.py
WORK = pa.schema([("rank", _INT), *_WORK, ("kernels", _INT), ("ns", _INT), ("flops", _INT), ("bytes", _INT)])
_PLACE = [("cause", _TEXT), ("op", _TEXT), ("trace", _TEXT)]
# of all steps but the first, as in ``prof/ranks/slow_ranks.py``
IDLE_PLACES = pa.schema([("rank", _INT), *_PLACE, ("gaps", _INT), ("ns", _INT)])
SCHEMAS = {"steps": STEPS, "collectives": COLLECTIVES, "work": WORK, "idle": IDLE_PLACES}
WORK_KEY, PLACE_KEY = tuple(name for name, _ in _WORK), tuple(name for name, _ in _PLACE)


@dataclass(frozen=True)
class RankTables:
    """The tables of one rank, or of several."""

    steps: pa.Table
    collectives: pa.Table
    work: pa.Table
    idle: pa.Table

    @classmethod
    def concat(cls, parts: list[RankTables]) -> RankTables:
        return cls(
            **{each.name: pa.concat_tables([getattr(part, each.name) for part in parts]) for each in fields(cls)}
        )

    def of(self, ranks: Sequence[int]) -> RankTables:
        """The tables of these ranks alone."""
        wanted = pa.array(ranks, pa.int64())
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return RankTables(**{name: table.filter(pc.is_in(table["rank"], wanted)) for name, table in own.items()})


def rank_tables(table: Table, annotation: Annotation) -> RankTables:
    """The tables of the ranks in a kernel table; rows whose rank is unknown are left out."""
    of_rows = waiting(table)
    cause = _causes(table, of_rows)
    parts = [
        _of_device(table.take(rows), annotation.take(rows), of_rows.idle_ns[rows], cause.take(rows), key[0])
        for key, rows in _devices(table)
    ]
    return RankTables.concat(parts) if parts else RankTables(*(schema.empty_table() for schema in SCHEMAS.values()))


def _causes(table: Table, of_rows: Waiting) -> Coded:
    """The causes of gaps for a comparison of ranks: a long gap after a wait for the GPU is a pause, or late data.

    The wait itself ends with the work waited for, and then launching takes a fraction of ``DENSE_NS``. What all ranks
    have (a ``loss.item()`` in each step) does not say why one of them goes on later.
    """
    cause = of_rows.cause
    paused = (cause.codes == CAUSES.index("sync")) & (of_rows.idle_ns >= DENSE_NS)
    why = np.where(input_data(table), CAUSES.index("data"), CAUSES.index("host"))
    return Coded(np.where(paused, why, cause.codes).astype(np.int32), cause.values)


def _devices(table: Table) -> list[tuple[tuple[int, ...], Ints]]:
    """Each GPU of a known rank and its rows in order of start."""
    keys, device = devices_of_rows(table)
    start = table.ints("start")
    on_gpu = ~table.coded("kind").among("cpu") & (start != NULL)
    chosen = [(key, np.flatnonzero(on_gpu & (device == number))) for number, key in enumerate(keys) if key[0] != NULL]
    return [(key, rows[np.argsort(start[rows], kind="stable")]) for key, rows in chosen if len(rows)]


def _of_device(table: Table, annotation: Annotation, idle: Ints, cause: Coded, rank: int) -> RankTables:
    return RankTables(
        steps=_steps(table, annotation, idle, cause, rank),
        collectives=_collectives(table, annotation, _calls(table, annotation, rank), rank),
        work=_work(table, annotation, rank),
        idle=_idle(table, idle, cause, rank),
    )


def _filled(schema: pa.Schema, rank: int, rows: int, columns: dict[str, object]) -> pa.Table:
    return pa.table({"rank": np.full(rows, rank, np.int64), **columns}, schema=schema)


def _steps(table: Table, annotation: Annotation, idle: Ints, cause: Coded, rank: int) -> pa.Table:
    found = steps(table, np.zeros(len(table), np.int64))
    numbers = np.array([NULL if step.number is None else step.number for step in found], np.int64)
    order = np.argsort(numbers, kind="stable")
    number = table.ints("step")
    place = np.minimum(np.searchsorted(numbers, number, sorter=order), len(numbers) - 1)
    inside = numbers[order[place]] == number  # rows outside of all steps belong to none
    into = order[place]

    def summed(values: NDArray[Any], rows: Bools) -> NDArray[Any]:
        totals = np.zeros(len(numbers), values.dtype)
        np.add.at(totals, into[rows & inside], values[rows & inside])
        return totals

    before = unprofiled(table.measured)
    kind, every = kinds(table, annotation), np.ones(len(table), bool)
    communication = kind.among(NCCL)
    work = ~kind.among(NCCL, COPIES)
    known, flops = np.where(idle == NULL, 0, idle), np.where(annotation.flops == NULL, 0, annotation.flops)

    def covered(rows: Bools) -> Ints:
        return summed(_covered(table, rows), rows)

    columns = {
        "step": pa.array(numbers, mask=numbers == NULL),
        "span_ns": [step.span_ns for step in found],
        "unprofiled_ns": pa.array([before and before.step_ns] * len(found), _FLOAT),
        "work_ns": covered(work),
        "kernels": summed(np.ones(len(table), np.int64), work),
        "flops": summed(flops, work),
        "exchanged": summed(*_exchanged(table)),
        "expert_flops": summed(*_expert_flops(table, annotation)),
        "copies_ns": covered(~communication) - covered(work),
        "comm_ns": covered(communication),
        "exposed_ns": covered(every) - covered(~communication),
        **{name: summed(known, cause.codes == code) for code, name in enumerate(IDLE)},
    }
    return _filled(STEPS, rank, len(found), columns)


def _exchanged(table: Table) -> tuple[Floats, Bools]:
    """The bytes that each row sends and receives if it is an all-to-all, and which rows are."""
    comm = table.coded("comm")
    found = [messages(text) for text in comm.values]
    amounts = [sum(each.read + each.written for each in record) for record in found]
    among = [any(each.op == ALL_TO_ALL for each in record) for record in found]
    return np.array([*amounts, 0.0])[comm.codes], np.array([*among, False])[comm.codes]


def _expert_flops(table: Table, annotation: Annotation) -> tuple[Floats, Bools]:
    """The FLOPs of each row, and the rows of products in a layer of experts, or of groups of rows."""
    chosen = table.coded("layer").where(_EXPERT.search) | table.coded("op").where(_GROUPED.search)
    chosen &= kinds(table, annotation).among(PRODUCTS)
    return np.where(annotation.flops == NULL, np.nan, annotation.flops.astype(np.float64)), chosen


def _after_first_step(table: Table) -> Bools:
    """The rows of all steps but the first, of which a capture may miss the beginning; all rows if there is one step."""
    step = table.ints("step")
    first, last = step[step != NULL].min(initial=np.iinfo(np.int64).max), step.max(initial=NULL)
    return np.ones(len(table), bool) if last <= first else step > first


def _covered(table: Table, work: Bools) -> Ints:
    """The time that each of these rows adds to what the ones before it cover: together, each instant counts once."""
    start, end = table.ints("start"), ends(table)
    low = np.iinfo(np.int64).min
    reach = np.maximum.accumulate(np.where(work, end, low))
    earlier = np.concatenate([[low], reach[:-1]])
    return np.where(work, np.maximum(end - np.maximum(start, earlier), 0), 0)


def _calls(table: Table, annotation: Annotation, rank: int) -> list[SymmetricCall]:
    """The collectives from all ranks to all ranks, and each send or receive as a collective of two, by start.

    The two ranks name their pair alike if the communicator has no other ranks, or numbers its ranks as the job does.
    """
    comm = table.coded("comm")
    pairs = [_pair(messages(text), rank) for text in comm.values]
    working = working_rows(table, annotation)
    found = [(row, pairs[comm.codes[row]]) for row in working[comm.codes[working] >= 0].tolist()]
    between = [SymmetricCall(row, pair, 2, TWO) for row, pair in found if pair is not None]
    start = table.ints("start")
    return sorted([*symmetric_collectives(table, annotation), *between], key=lambda call: (start[call.row], call.row))


def collective_rows(table: Table, annotation: Annotation) -> dict[tuple[object, ...], dict[int, int]]:
    """The row of each rank by collective, whose key is as in ``COLLECTIVE``."""
    found: dict[tuple[object, ...], dict[int, int]] = {}
    for key, rows in _devices(table):
        own = table.take(rows)
        calls = _calls(own, annotation.take(rows), key[0])
        step = own.ints("step")[[call.row for call in calls]].tolist()
        for call, number, sequence, place in zip(calls, step, *_positions(calls, step), strict=True):
            collective = (call.group, call.ranks, number, sequence, place, call.op)
            found.setdefault(collective, {})[key[0]] = int(rows[call.row])
    return found


def _pair(record: tuple[Message, ...], rank: int) -> str | None:
    """The name of the pair of ranks of a send or receive; None for other records, and without the peer's number."""
    if len(record) != 1 or record[0].op not in ("send", "recv") or (record[0].ranks != 2 and record[0].peer < 0):
        return None
    message = record[0]
    ends = sorted((rank, message.peer))
    return message.group if message.ranks == 2 else f"{message.group}: {ends[0]} and {ends[1]}"


def _within(table: Table) -> Ints:
    """For each row whether it was launched in the forward pass of a layer, and whether that is attention."""
    layer, op, nodes = (table.coded(key) for key in ("layer", "op", "nodes"))
    attention = layer.where(_ATTENTION.search) | op.where(_ATTENTION.search) | nodes.where(_ATTENTION.search)
    inside = (layer.codes >= 0) & ~table.coded("phase").among("backward") & ~nodes.where(_is_norm)
    return np.where(attention, 2, np.where(inside, 1, 0))


def _is_norm(text: str) -> bool:
    return "batch_norm" in text or "SyncBatchNorm" in text  # statistics of a batch, shared by the ranks


def _collectives(table: Table, annotation: Annotation, calls: list[SymmetricCall], rank: int) -> pa.Table:
    rows = np.array([call.row for call in calls], np.int64)
    step = table.ints("step")[rows]
    sequence, place = _positions(calls, step.tolist())
    comm = table.coded("comm")
    records = [messages(text) for text in comm.values]
    sizes, wires = ([*map(measure, records), np.nan] for measure in (size_of, wire_of))
    columns = {
        "group": [call.group for call in calls],
        "ranks": [call.ranks for call in calls],
        "step": pa.array(step, mask=step == NULL),
        "sequence": sequence,
        "place": place,
        "op": [call.op for call in calls],
        "ns": np.maximum(table.ints("kDuration")[rows], 0),
        "alone_ns": exposed_rows(table, annotation)[rows],
        "end_ns": ends(table)[rows],
        "within": _within(table)[rows],
        "size": np.array(sizes)[comm.codes[rows]],  # code -1: the last value
        "wire": np.array(wires)[comm.codes[rows]],
        **{key: np.array([*(_bytes(each, key) for each in records), np.nan])[comm.codes[rows]] for key in _WAYS},
    }
    return _filled(COLLECTIVES, rank, len(rows), columns)


_WAYS = ("read", "written")


def _bytes(record: tuple[Message, ...], way: str) -> float:
    return float(sum(getattr(message, way) for message in record))


def _positions(calls: list[SymmetricCall], step: list[int]) -> tuple[list[str], list[int]]:
    """For each call, the digest of its group's ops within its step, and its place among them."""
    ops: dict[tuple[str, int, int], list[str]] = {}
    keys, place = [], []
    for call, number in zip(calls, step, strict=True):
        key = (call.group, call.ranks, number)
        keys.append(key)
        place.append(len(ops.setdefault(key, [])))
        ops[key].append(call.op)
    digest = {key: blake2b("\n".join(names).encode(), digest_size=8).hexdigest() for key, names in ops.items()}
    return [digest[key] for key in keys], place


def _work(table: Table, annotation: Annotation, rank: int) -> pa.Table:
    op, layer, phase = (table.coded(key) for key in ("op", "layer", "phase"))
    kind = kinds(table, annotation)
    keys, group = distinct(*(each.codes.astype(np.int64) for each in (op, layer, phase, kind)))

    def texts(coded: Coded, at: int, read: bool = False) -> list[str]:
        values = [coded.values[key[at]] if key[at] >= 0 else "" for key in keys]
        return [first_text(value) if read and value else value for value in values]

    def summed(values: Ints) -> Ints:
        total = np.zeros(len(keys), np.int64)
        np.add.at(total, group, np.where(values == NULL, 0, values))
        return total

    columns = {
        "op": texts(op, 0, read=True),
        "layer": texts(layer, 1),
        "phase": texts(phase, 2),
        "kind": texts(kind, 3),
        "kernels": np.bincount(group, minlength=len(keys)),
        "ns": summed(table.ints("kDuration")),
        "flops": summed(annotation.flops),
        "bytes": summed(annotation.bytes),
    }
    return _filled(WORK, rank, len(keys), columns)


def _idle(table: Table, idle: Ints, cause: Coded, rank: int) -> pa.Table:
    rows = np.flatnonzero((idle != NULL) & (idle > 0) & (cause.codes >= 0) & _after_first_step(table))
    called, number = call_places(table, rows)  # a place: what the user called, and its place
    keys, group = distinct(number, cause.codes[rows])
    ns = np.bincount(group, weights=idle[rows], minlength=len(keys)).astype(np.int64)
    gaps = np.bincount(group, minlength=len(keys))
    longest = np.argsort(-ns, kind="stable")[:MOST_PLACES].tolist()
    columns = {
        "cause": [cause.values[keys[i][1]] for i in longest],
        "op": [called[keys[i][0]][0] for i in longest],
        "trace": [str(called[keys[i][0]][1]) for i in longest],
        "gaps": gaps[longest],
        "ns": ns[longest],
    }
    return _filled(IDLE_PLACES, rank, len(longest), columns)
