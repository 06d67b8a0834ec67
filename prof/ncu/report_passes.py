"""The pass and the phase of each measured kernel.

Passes are forward, backward and optimizer. Phases are these too, without two parts at the ends of the model that are
phases of their own, forward and backward together:

    encoder      the embeddings of the inputs
    classifier   from the last matrix product before the loss, such as the head of a language model, on

A backward kernel belongs to the phase of its forward op, which autograd's sequence numbers name. Without ranges, passes
and phases are guessed: some kernel names say forward, backward, optimizer, loss or embedding, and a kernel whose name
says none of these has the pass of the kernel before it.
"""

import re
from collections.abc import Sequence

from pyprof.parse.ncu.report import Launch
from pyprof.prof.ncu.report_origins import BACKWARD, FORWARD, OPTIMIZER, OTHER, UNKNOWN, Origin, origins
from pyprof.prof.work import kinds as work_kinds
from pyprof.prof.work.kinds import CONVS, PRODUCTS, is_loss, kind_of_kernel

ENCODER, CLASSIFIER = "encoder", "classifier"
PHASES = (ENCODER, FORWARD, CLASSIFIER, BACKWARD, OPTIMIZER, OTHER, UNKNOWN)

_LOSS_OP = re.compile(r"loss|cross_entropy|kl_div|nll", re.IGNORECASE)
# PyTorch's, and FBGEMM's and TorchRec's tables of embeddings; a rotary embedding is none: it is part of each layer
_EMBEDDING_OP = re.compile(r"_?embedding(?:_bag)?|\w*embedding_(?:bag|lookup|codegen)\w*|\w*EmbeddingBag\w*")
_BACKWARD_NAME = re.compile(r"backward|bwd|[dw]grad|_grad_|_bprop|Backward", re.IGNORECASE)
_FORWARD_NAME = re.compile(r"forward|fwd|fprop", re.IGNORECASE)
_ENCODER_NAME = re.compile(r"embedding|\bencoder_(?:forward|backward)", re.IGNORECASE)
_LOSS_NAME = re.compile(r"classifier|\bloss|_loss", re.IGNORECASE)


def passes_and_phases(launches: Sequence[Launch]) -> tuple[list[Origin], list[str]]:
    """The origin of each launch, with its pass, and its phase."""
    found = origins(launches)
    if not any(origin.passed not in (UNKNOWN, OTHER) for origin in found):
        return _by_name([launch.name for launch in launches])
    return found, _phases(launches, found)


# By ranges


def _phases(launches: Sequence[Launch], found: Sequence[Origin]) -> list[str]:
    phases = [origin.passed for origin in found]
    kinds = [kind_of_kernel(launch.name) for launch in launches]
    encoder: set[int] = set()
    classifier: list[tuple[int, float]] = []  # sequence numbers: first, and the first that is no longer the classifier
    for rows in _forward_runs(found):
        encoders = [row for row in rows if any(_EMBEDDING_OP.fullmatch(op) for op in found[row].ops)]
        encoder.update(number for row in encoders for number in found[row].numbers)
        head = _head(rows, found, kinds)
        for row in rows:
            phases[row] = ENCODER if row in encoders else CLASSIFIER if row in head else FORWARD
        numbers = [number for row in rows for number in found[row].numbers]
        if classifier and numbers:
            classifier[-1] = (classifier[-1][0], min(numbers))
        of_head = [number for row in head for number in found[row].numbers]
        classifier += [(min(of_head), float("inf"))] if of_head else []
    for row, origin in enumerate(found):
        if origin.passed == BACKWARD and origin.numbers:
            (number,) = origin.numbers[-1:]
            in_head = any(first <= number < end for first, end in classifier)
            phases[row] = ENCODER if number in encoder else CLASSIFIER if in_head else BACKWARD
    return phases


def _forward_runs(found: Sequence[Origin]) -> list[list[int]]:
    """The rows of each forward pass: until a backward pass or an optimizer's step."""
    runs: list[list[int]] = [[]]
    for row, origin in enumerate(found):
        if origin.passed == FORWARD:
            runs[-1].append(row)
        elif origin.passed in (BACKWARD, OPTIMIZER) and runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _head(rows: Sequence[int], found: Sequence[Origin], kinds: Sequence[str]) -> list[int]:
    """The rows from the last product before the last loss on; those of the product's call belong to it.

    The last, because some models add a loss in each layer, such as those that balance experts.
    """
    losses = [at for at, row in enumerate(rows) if _is_loss_op(found[row])]
    if not losses:
        return []
    products = [at for at in range(losses[-1]) if kinds[rows[at]] in (PRODUCTS, CONVS)]
    first = products[-1] if products else losses[0]
    while first and found[rows[first - 1]].call and found[rows[first - 1]].call == found[rows[first]].call:
        first -= 1
    return list(rows[first:])


def _is_loss_op(origin: Origin) -> bool:
    return any(_LOSS_OP.search(op) for op in origin.ops)


# By names


def _by_name(names: Sequence[str]) -> tuple[list[Origin], list[str]]:
    said = [_said(name) for name in names]
    if not any(said):
        return [Origin()] * len(names), [UNKNOWN] * len(names)
    passes = _filled(said)
    phases = [
        ENCODER if _ENCODER_NAME.search(name) else CLASSIFIER if _is_loss_name(name) else passed
        for name, passed in zip(names, passes, strict=True)
    ]
    for row, phase in enumerate(phases):  # the product that makes the logits
        if phase == CLASSIFIER and passes[row] == FORWARD:
            before = [at for at in range(row) if kind_of_kernel(names[at]) == PRODUCTS]
            if before and phases[before[-1]] == FORWARD:
                phases[before[-1]] = CLASSIFIER
            break
    return [Origin(passed) for passed in passes], phases


def _said(name: str) -> str:
    if kind_of_kernel(name) == work_kinds.OPTIMIZER:
        return OPTIMIZER
    if _BACKWARD_NAME.search(name):
        return BACKWARD
    return FORWARD if _FORWARD_NAME.search(name) or _is_loss_name(name) else UNKNOWN


def _is_loss_name(name: str) -> bool:
    return is_loss(name) or bool(_LOSS_NAME.search(name))


def _filled(said: Sequence[str]) -> list[str]:
    """A pass for each kernel, from those that names give: that of the last name before it which gives one.

    After an optimizer's step comes a forward pass.
    """
    passes, last = [], FORWARD
    for at, word in enumerate(said):
        if not word and last == OPTIMIZER:
            following = next((later for later in said[at:] if later), OPTIMIZER)
            word = FORWARD if following != OPTIMIZER else OPTIMIZER
        last = word or last
        passes.append(last)
    return passes
