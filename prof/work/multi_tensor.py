"""Optimizers of apex, DeepSpeed and Transformer Engine: multi-tensor kernels that no op launches.

Their arguments are not recorded. But autograd records each gradient that it accumulates, with the shape of its
parameter, and such a kernel has one block per chunk of 65,536 elements of each tensor (apex: chunk_size of 2048*32 in
multi_tensor_apply/__init__.py, block_to_chunk in csrc/multi_tensor_apply.cuh). So if the kernels of one kind in a step
have as many blocks as the step's gradients have chunks, or a multiple, they worked on tensors of these shapes. The sum
over the launches is then exact; each launch gets a share by its blocks. Parameters without dimensions may have another
optimizer, so the gradients are tried next without them. If at most one in a hundred chunks is missing, the kernels
worked on at least the remaining ones. For a step without such a proof, because the capture began in its middle, the
work of another step with the same launches is used.

FLOPs are those of PyTorch's fused optimizers (``ops/optimizer``), without weight decay, which is not recorded.
"""

import math
import re
from dataclasses import dataclass, replace

import numpy as np

from pyprof.dtypes import ITEM_BYTES, cpp_bytes
from pyprof.prof.kernels.type_names import parameters
from pyprof.prof.work.cut_lists import CHUNK, blocks_along_x, chunks, shapes_of
from pyprof.prof.work.shares import split
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct

KERNEL = "multi_tensor_apply_kernel<"
LEAST = 100  # one in this many chunks of a step may be missing


@dataclass(frozen=True, slots=True)
class Functor:
    """FLOPs per element, and for each list read or written the number of the template parameter with its dtype."""

    flop: int
    read: tuple[int, ...]
    write: tuple[int, ...]
    why: str


# Template parameters by number. If the second type is missing, it equals the first: AdamFunctor<float> of 2022.
FUNCTORS = {
    "AdamFunctor": Functor(13, (0, 0, 1, 1), (0, 1, 1), "as _fused_adam: g, p, m, v read; p, m, v written"),
    "AdamCapturableFunctor": Functor(13, (0, 0, 1, 1), (0, 1, 1), "as _fused_adam"),
    "AdamCapturableMasterFunctor": Functor(13, (0, 1, 1, 1), (0, 1, 1, 1), "as _fused_adam; p kept in float32, too"),
    "AdagradFunctor": Functor(7, (0, 0, 0), (0, 0), "as _fused_adagrad: g, p, h"),
    "SGDFunctor": Functor(4, (1, 2, 2), (2, 2), "as _fused_sgd with momentum: g, p, m"),
    "NovoGradFunctor": Functor(6, (0, 0, 0), (0, 0), "g over its norm 1, m 3, p 2"),
    "LAMBStage1Functor": Functor(13, (0, 0, 0, 0), (0, 0, 0), "g scaled 1, m 3, v 4, direction 5, written to g"),
    "LAMBStage2Functor": Functor(2, (0, 0), (0,), "p - ratio update"),
    "L2NormFunctor": Functor(2, (0,), (), "squares and their sum"),
    "UnscaleL2NormFunctor": Functor(3, (0,), (), "scaled squares and their sum"),
    "MaxNormFunctor": Functor(0, (0,), (), "comparisons"),
    "ScaleFunctor": Functor(1, (0,), (1,), "x scale"),
    "AxpbyFunctor": Functor(3, (0, 1), (2,), "a x + b y"),
}


def functor_of(name: str) -> tuple[str, list[str]]:
    """The functor of a multi-tensor kernel by its long name, and its template parameters; empty for other kernels.

    >>> functor_of("void multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, c10::Half>, float>()")
    ('ScaleFunctor', ['float', 'c10::Half'])
    """
    if KERNEL not in name:
        return "", []
    match = re.search(r"\b(\w+Functor)<", name)
    if match is None or match[1] not in FUNCTORS:
        return "", []
    return match[1], parameters(name, match)


def element_bytes(functor: str, words: list[str]) -> float:
    """Bytes read and written per element of the lists; NaN if a dtype is unknown."""
    rule = FUNCTORS[functor]
    sizes = {place: size for place, size in enumerate(map(cpp_bytes, words)) if size is not None}
    first = next(iter(sizes.values()), math.nan)  # where a parameter is missing or is not a type
    copies = ITEM_BYTES["float16"] if functor == "SGDFunctor" and words[:1] == ["4"] else 0  # fp16 model weights
    return sum(sizes.get(place, first) for place in (*rule.read, *rule.write)) + copies


@dataclass(frozen=True, slots=True)
class Proof:
    """The number of elements that the launches of one functor in a step processed, proven by the gradients' shapes."""

    elements: int
    tensors: int
    exact: bool
    again: bool = False  # True: proven for another step, which launched the same blocks


def elements(grads: str, launched: int) -> Proof | None:
    """The elements that ``launched`` blocks processed, by the shapes of the step's gradients; None if not proven.

    >>> elements("[[65537], [10], []]", 3)  # 2 + 1 chunks, without the one of no dimension
    Proof(elements=65547, tensors=2, exact=True, again=False)
    """
    shapes = shapes_of(grads)
    if not shapes or not launched:
        return None
    times = sum(map(chunks, shapes)) // launched  # gradients accumulated over several backward passes come as often
    part = shapes[: len(shapes) // times] if times else []
    for some in (shapes, [shape for shape in shapes if shape], part if part * times == shapes else []):
        whole = sum(map(chunks, some))
        if whole and launched % whole == 0:
            count = sum(map(math.prod, some))
            return Proof(launched // whole * count, len(some), True)
    missing = sum(map(chunks, shapes)) - launched
    if 0 < missing * LEAST <= launched:
        count = sum(map(math.prod, shapes))
        return Proof(max(count - missing * CHUNK, 0), len(shapes), False)
    return None


def steps(table: Table, names: Coded) -> list[tuple[str, Ints, Proof | None]]:
    """(functor, its rows in a step, the proof) for all multi-tensor kernels outside of an op."""
    grads, aten = table.coded("grads"), table.coded("aten")
    found = [functor_of(name)[0] for name in names.values]
    number = {name: i for i, name in enumerate(filter(None, dict.fromkeys(found)))}
    kind = np.array([*(number.get(name, -1) for name in found), -1], np.int64)[names.codes]
    rows = np.flatnonzero((kind >= 0) & (aten.codes < 0))
    if not len(rows):
        return []
    step = np.where(grads.codes < 0, table.ints("step"), 0)  # no gradients: the capture began after the backward pass
    keys, place = distinct(table.ints("pid")[rows], grads.codes[rows], step[rows], kind[rows])
    blocks = blocks_along_x(table)
    functors, runs = list(number), []
    seen: dict[tuple[int, tuple[int, ...]], Proof] = {}
    for i, (_, code, _, functor) in enumerate(keys):
        of_key = rows[place == i]
        launches = (functor, tuple(blocks[of_key].tolist()))
        proof = elements(grads.values[code], sum(launches[1])) if code >= 0 else None
        if proof is not None:
            seen.setdefault(launches, replace(proof, again=True))
        runs.append((functors[functor], of_key, launches, proof))
    return [(functor, of_key, proof or seen.get(launches)) for functor, of_key, launches, proof in runs]


def fill_multi_tensor(table: Table, names: Coded, flops: Ints, nbytes: Ints) -> None:
    """Write into ``flops`` and ``nbytes`` the work of multi-tensor kernels outside of any op."""
    blocks = blocks_along_x(table)
    for functor, rows, proof in steps(table, names):
        if proof is None:
            continue
        for row, share in zip(rows.tolist(), split(proof.elements, blocks[rows].tolist()), strict=True):
            per_element = element_bytes(*functor_of(names.values[names.codes[row]]))
            flops[row] = FUNCTORS[functor].flop * share
            nbytes[row] = NULL if math.isnan(per_element) else int(per_element * share)


def explained(table: Table, names: Coded, row: int) -> str:
    """Where the numbers of a multi-tensor kernel outside of any op come from; empty for other rows."""
    for functor, rows, proof in steps(table, names):
        if row in rows:
            launches = f"{len(rows)} launches with {int(blocks_along_x(table)[rows].sum()):,} blocks"
            if proof is None:
                return f"unknown: the step's gradients do not have as many chunks of {CHUNK:,} as its {launches}"
            rule = FUNCTORS[functor]
            count = f"{'' if proof.exact else 'at least '}{proof.elements:,} elements"
            which = "another, equal" if proof.again else "the"
            return (
                f"inferred: {count} in {proof.tensors} gradients of {which} step, by its {launches} of {CHUNK:,} "
                f"elements, shared by blocks; {rule.flop} FLOP per element: {rule.why}"
            )
    return ""
