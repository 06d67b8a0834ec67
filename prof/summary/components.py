"""Parts of a capture: its rows by any text, by part of the model, and by the layers that the model repeats.

A part of the model is attention, MLP, norm, embedding, loss, optimizer, communication or copies. It follows from the
names of the row's layers, innermost first, or else from the function that the program called, where it is a loss, or
from its op's family. Copies, collectives and the optimizer are separate parts.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import COPIES, NCCL, OPTIMIZER
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import Coded, Ints, Table, distinct_texts

LOSS = r"loss|criterion|entropy"
IS_LOSS = re.compile(LOSS, re.IGNORECASE)  # cross_entropy runs a softmax and copies, too
OF_LAYER: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), part)
    for pattern, part in (
        (r"norm|(?:^|_)ln(?:_|\d|$)|(?:^|_)bn\d*$", "norm"),
        (r"attn|attention|[qkvo]_proj|qkv", "attention"),
        (r"mlp|ffn|feed_?forward|moe|expert|gate_proj|up_proj|down_proj", "MLP"),
        (r"embed|(?:^|\W)w[tp]e(?:\W|$)", "embedding"),
        (r"lm_head|head$|classifier|logits|sampler", "head"),
        (LOSS, "loss"),
        (r"conv|downsample", "convolution"),
        (r"pool", "pooling"),
    )
)
OF_FAMILY = {name: name for name in ("attention", "norm", "embedding", "loss", "pooling")}
OF_FAMILY |= {"conv": "convolution", "rnn": "recurrent layers"}
LEAST = 3  # the smallest number of layers in a series
# Layers form a series only if at least half of them take between 1/1.5 and 1.5 times the median.
ALIKE = 1.5
COUNTED = re.compile(r"^(.*?[._])(\d+)$")  # h.3, DecoderLayer_3; not fc3


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows."""

    name: Annotated[str, doc("its name")]
    rows: Annotated[int, doc("number of rows")]
    ns: Annotated[int, doc("their time")]
    idle_ns: Annotated[int | None, doc("idle time before them; null in an incomplete capture")] = 0


@dataclass(frozen=True, slots=True)
class StepPart(Part):
    """The operations that one step launched, and the step's time, which is that of the slowest GPU."""

    ns: Annotated[int, doc("time of the step, from mark to mark as the GPU reaches them; unmarked: to the next step")]
    idle_ns: Annotated[int | None, doc("of this, time in which no operation ran; null in an incomplete capture")] = 0
    mark_ns: Annotated[int | None, doc("on the host's clock, from its mark to the next; null where no mark says")] = (
        None
    )
    extent_ns: Annotated[int, doc("GPU extent: from the start of its first operation to the end of its last one")] = 0


def parts_of(column: Coded, weight: Ints, rows: Ints | None = None, empty: str = "") -> tuple[Part, ...]:
    """Rows and time per text of the column, the longest first; ``empty`` replaces the empty text."""
    codes, weight = (column.codes, weight) if rows is None else (column.codes[rows], weight[rows])
    counts = np.bincount(codes + 1, minlength=len(column.values) + 1).tolist()  # code -1 first
    totals = np.zeros(len(counts), np.int64)
    np.add.at(totals, codes + 1, weight)
    sums: dict[str, list[int]] = {}
    for value, count, ns in zip(["", *column.values], counts, totals.tolist(), strict=True):
        if count:
            sum_of_text = sums.setdefault(value or empty, [0, 0])
            sum_of_text[0] += count
            sum_of_text[1] += ns
    parts = [Part(name, count, ns) for name, (count, ns) in sums.items()]
    return tuple(sorted(parts, key=lambda part: -part.ns))


def components(table: Table, annotation: Annotation, kinds: Coded) -> Coded:
    """The part of the model of every row, decided once per distinct (layer, op, family, phase, kind)."""
    rows, row = distinct_texts(table.coded("layer"), table.coded("op"), annotation.family, table.coded("phase"), kinds)
    return Coded.of(_component(*texts) for texts in rows).take(row)


def _component(layer: str, op: str, family: str, phase: str, kind: str) -> str:
    if kind == NCCL:
        return "communication"
    if kind == COPIES:
        return "copies"
    if phase == "optimizer":
        return "optimizer"
    names = layer_parts(layer)
    if len(names) > 1 and IS_LOSS.search(names[0]):  # GPT2WithLoss: a model that computes its loss is not all loss
        names = names[1:]
    by_name = (part for name in reversed(names) for pattern, part in OF_LAYER if pattern.search(name))
    otherwise = "loss" if IS_LOSS.search(op) else OF_FAMILY.get(family, OPTIMIZER if kind == OPTIMIZER else "other")
    return next(by_name, otherwise)


@dataclass(frozen=True, slots=True)
class Series:
    """Layers whose names differ only by a number: `Model:h.*`."""

    name: Annotated[str, doc("the layers' common name")]
    numbers: Annotated[list[int], doc("numbers of the layers, ascending")]
    ns: Annotated[list[int], doc("time of all rows of each")]

    @property
    def median_ns(self) -> float:
        return float(np.median(self.ns))

    def outliers(self, far: float) -> list[tuple[int, float]]:
        """Layers that take at least ``far`` times or at most 1 / ``far`` of the median time, with their ratio to it."""
        if not self.median_ns:
            return []
        ratios = [(number, ns / self.median_ns) for number, ns in zip(self.numbers, self.ns, strict=True)]
        return [(number, ratio) for number, ratio in ratios if ratio >= far or ratio * far <= 1]


def series(layers: Coded, duration: Ints) -> Series | None:
    """The repeated layers with the most time; if repeated layers contain each other, the outermost."""
    sums = np.zeros(len(layers.values) + 1)
    np.add.at(sums, layers.codes, duration)
    found: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for text, ns in zip(layers.values, sums[:-1].tolist(), strict=True):
        for name, number in _counted(layer_parts(text)) if ns else ():  # a part of a table may have none of its rows
            found[name][number] += int(ns)
    real = {name: members for name, members in found.items() if _alike(list(members.values()))}
    if not real:
        return None
    name = max(real, key=lambda n: (sum(real[n].values()), -n.count(":"), n))
    members = dict(sorted(real[name].items()))
    return Series(name, list(members), list(members.values()))


def _alike(ns: Sequence[int]) -> bool:
    median = float(np.median(ns))
    return len(ns) >= LEAST and 2 * sum(median <= n * ALIKE and n <= median * ALIKE for n in ns) >= len(ns)


def _counted(parts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """For each part of a path that ends in a number: the path with "*" instead of the number, and the number."""
    for i, part in enumerate(parts):
        match = COUNTED.match(part)
        if match and len(match[2]) <= 6:
            yield ":".join([*parts[:i], f"{match[1]}*"]), int(match[2])
