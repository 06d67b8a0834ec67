"""FLOPs and bytes of a piece of PyTorch code, without a profiler: ``pyprof.count``.

    work = pyprof.count(net, x, backward=True)    # a call, and the gradients of everything that it used
    work.forward.flop, work.backward.flop, work.bytes, work.ops["linear"]

    with pyprof.count() as work:                  # or any code: a training step with its optimizer
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
    print(work)                                   # a table by op; ops without a model are named

Works on CPU, CUDA, meta and fake tensors. The numbers describe the algorithm and do not depend on the device.

In the forward pass, the outermost call with a model is counted, and the calls inside it are not: ``matmul`` counts as
matmul, without the copies that one backend makes to broadcast, and attention counts the same on a CPU (which runs other
ops) as on a GPU. Two modes of torch see the calls:

* a ``TorchFunctionMode`` sees the API: functions written in C under the name of their aten op, and the functions
  written in Python that ``PYTHON_API`` lists. If such a function has a model that can count the call, the model's
  work is the count;
* a ``TorchDispatchMode`` sees every op that is dispatched below. These are counted in all other cases, in particular
  the views, copies and casts that ``reshape``, ``contiguous`` or ``to`` may or may not make, and autocast's casts.

Inside ``vmap`` and in forward mode, the dispatched ops are counted in all cases, since a call's arguments do not show
what it runs.

In the backward pass, each autograd node belongs to the call that created it. If the call's op has a model of its whole
backward (``"matmul.backward"``), this model is counted once per backward pass, for the gradients that the engine
computes in this pass. Otherwise the ops that the node dispatches are counted. The work of ``AccumulateGrad`` (adding to
existing gradients, or copying gradients that it cannot use as they are) has the direction "accumulate": it is in the
total, but neither in ``forward`` nor in ``backward``. Forward calls that a backward pass repeats (checkpoints) are
backward work.

All threads are counted, or else named in ``Counts.unknown`` (``worker_threads.py``). Ops on fake tensors count only
if the code itself is run on them (``fake_tensors.py``). docs/reference/autograd.md has a program for each feature.
"""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import torch

from pyprof.counting.arguments import tensors
from pyprof.counting.counter import Counter
from pyprof.counting.counts import Counts
from pyprof.prof.ops.plugins import load_models


def count(function: Callable[..., Any] | None = None, /, *args: Any, backward: bool = False, **kwargs: Any) -> Any:
    """Count the FLOPs and bytes of a call, or, without a function, of the block of a ``with`` statement.

    Returns ``Counts``, with the function's result in ``Counts.result``. Without a function, it returns a context
    manager that gives ``Counts``. Exceptions of the code pass through.

    ``backward=True`` also counts the gradients of the call's results with respect to all leaves that they depend on,
    for a gradient of ones in each result (making the ones is not counted). The leaves' ``.grad`` is left alone, so the
    work of accumulating into it is not counted.
    """
    load_models()
    counter = Counter(Counts())
    if function is None:
        return _block(counter)
    with closing(counter):
        with counter:
            counter.sums.result = function(*args, **kwargs)
        if backward:
            _differentiate(counter)
    return counter.sums


@contextmanager
def _block(counter: Counter) -> Iterator[Counts]:
    """The context manager of ``with pyprof.count() as work``."""
    with closing(counter), counter:
        yield counter.sums


def _differentiate(counter: Counter) -> None:
    outputs = [t for t in tensors(counter.sums.result) if t.requires_grad]
    leaves = leaves_of(outputs)
    if not outputs or not leaves:
        return
    seeds = [torch.ones_like(t, memory_format=torch.contiguous_format) for t in outputs]
    with counter:
        torch.autograd.grad(outputs, leaves, seeds, allow_unused=True, retain_graph=True)


def leaves_of(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves of the outputs' graph."""
    leaves: dict[int, torch.Tensor] = {id(t): t for t in outputs if t.is_leaf}
    todo = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(todo)
    while todo:
        node = todo.pop()
        if (variable := getattr(node, "variable", None)) is not None:
            leaves[id(variable)] = variable
        following = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= following
        todo += following
    return list(leaves.values())
