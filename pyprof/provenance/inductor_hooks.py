"""Follow inductor while it compiles, and name each compiled graph where it runs.

Some of its functions are replaced, once it has been imported. The code that it generates stays the same, except that
on a machine without a GPU its C++ kernels name themselves to the profiler, by inductor's own setting.

* ``maybe_handle_decomp`` runs the decomposition of an op, ``PatternEntry.apply`` replaces nodes (decomposed_calls.py).
* ``set_kernel_post_grad_provenance_tracing`` is told of each call that the code generator writes (2.8 to 2.13).
* ``_COPY_META_FIELDS`` lists what the nodes of a graph keep when it is traced again. Compiled autograd traces backward
  graphs again, whose nodes must not lose the layers of their forward ops.
* ``TritonScheduling._codegen_mix_order_reduction`` (2.10 to 2.13) writes calls without telling (mixed_reductions.py).
* ``GraphLowering.codegen`` writes the code of a graph, and reads that setting.
* ``CompiledFxGraph.__init__`` gets the complete graph, and keeps its record as an attribute, which inductor's caches
  store with the graph.
* ``FxGraphHashDetails.__init__`` makes the keys of these caches. Under pyprof they differ, because entries that were
  made without pyprof have no record. So a program's first run under pyprof generates its code anew; the Triton kernels
  of that code come from their own caches.
* ``CompiledFxGraph.__call__`` runs a graph; while something records, it opens the graph's range.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import msgspec

from pyprof.compiled_record import VERSION

_DECOMPOSING = "maybe_handle_decomp"
_TOLD = "set_kernel_post_grad_provenance_tracing"
_TELLING = ("debug", "codegen.triton", "codegen.cpp", "ir", "scheduler")  # modules of inductor that have this name
_COPIED = "_COPY_META_FIELDS"  # what a node keeps when its graph is traced again
_OF_FORWARD = ("fwd_nn_module_stack", "fwd_source_fn_stack")  # of a backward node: where its forward op was called
_NAMED_KERNELS = "cpp.enable_kernel_profile"  # a setting of inductor: C++ kernels are ops of the profiler
_RECORD, _KNOWN = "_pyprof_record", "_pyprof_known"  # attributes of a CompiledFxGraph
_GENERATED = 2  # changes with what the hooks make of a graph, so that older entries of inductor's caches are not taken
_NUMBERS = itertools.count(1)
# What reading the objects of another release raises: names, types and forms that differ, and inductor's own refusals.
_UNKNOWN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
_SIZES_MOST = 64  # sets of sizes per graph: a program may have new ones in each step, and NVTX never frees a text


class _Known(NamedTuple):
    """What a process knows of a graph that it runs."""

    pid: int
    symbols: dict[str, tuple[int, int]]
    records: dict[tuple[int, ...], tuple[str, str]]  # the values of the symbols -> number, record


class Owner(Protocol):
    """What the hooks ask of the session."""

    def is_on(self) -> bool: ...

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute until the session ends."""

    def shown(self, path: str) -> str | None:
        """The name under which a source file is shown; empty if it is not the user's."""

    def failed(self, error: Exception) -> None:
        """A graph could not be recorded."""

    def range(self, number: str, record: str) -> AbstractContextManager[None]:
        """A context manager: the range of a compiled graph."""


def install(owner: Owner) -> None:
    """Follow inductor from now on. It is not imported before the program's first call of torch.compile needs it."""
    import torch

    if "torch._inductor.compile_fx" in sys.modules:
        _Hooks(owner).replace()
        return
    entry = getattr(torch, "_TorchCompileInductorWrapper", None)
    if entry is not None:
        owner.set(entry, "__call__", _importing(entry.__call__, owner))


def _importing(call: Callable[..., Any], owner: Owner) -> Callable[..., Any]:
    """``call``, which hands a graph to inductor, with the hooks in place."""
    hooks = _Hooks(owner)

    @functools.wraps(call)
    def __call__(*args: Any, **kwargs: Any) -> Any:
        if owner.is_on():
            hooks.replace()
        return call(*args, **kwargs)

    return __call__


class _Hooks:
    """The replacements of inductor's functions, made once."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._replaced = False

    def replace(self) -> None:
        if self._replaced:
            return
        self._replaced = True
        try:
            self._replace()
        except (ImportError, AttributeError, KeyError) as error:  # another release of inductor
            self._owner.failed(error)

    def _replace(self) -> None:
        from torch._inductor.codecache import FxGraphHashDetails
        from torch._inductor.compile_fx import CompiledFxGraph
        from torch._inductor.graph import GraphLowering
        from torch._inductor.pattern_matcher import PatternEntry
        from torch.fx import proxy
        from torch.fx.experimental import proxy_tensor

        from pyprof.provenance.decomposed_calls import marking, replacing
        from pyprof.provenance.mixed_reductions import replacements

        owner = self._owner
        telling = [importlib.import_module(f"torch._inductor.{name}") for name in _TELLING]
        told = vars(telling[0])[_TOLD]
        noting = self._noting(told)
        for module in telling:
            if vars(module).get(_TOLD) is told:
                owner.set(module, _TOLD, noting)
        owner.set(proxy, _COPIED, [*vars(proxy)[_COPIED], *_OF_FORWARD])
        owner.set(proxy_tensor, _DECOMPOSING, marking(vars(proxy_tensor)[_DECOMPOSING], owner.is_on, self._careful))
        for entry in PatternEntry.__subclasses__():
            owner.set(entry, "apply", replacing(entry.apply, owner.is_on, self._careful))
        for scheduling, name, replacement in replacements(owner.is_on, self._careful):
            owner.set(scheduling, name, replacement)
        owner.set(GraphLowering, "codegen", self._profiled(GraphLowering.codegen))
        owner.set(CompiledFxGraph, "__init__", self._keeping(CompiledFxGraph.__init__))
        owner.set(FxGraphHashDetails, "__init__", self._salted(FxGraphHashDetails.__init__))
        owner.set(CompiledFxGraph, "__call__", self._ranged(CompiledFxGraph.__call__))

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        from torch._inductor.virtualized import V

        from pyprof.provenance.graph_calls import note_call

        @functools.wraps(original)
        def set_kernel_post_grad_provenance_tracing(
            node_schedule: Any, kernel_name: Any, *args: Any, **kwargs: Any
        ) -> Any:
            if self._owner.is_on() and kernel_name:
                with self._careful():
                    note_call(V.graph, node_schedule, str(kernel_name))
            return original(node_schedule, kernel_name, *args, **kwargs)

        return set_kernel_post_grad_provenance_tracing

    def _profiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch
        from torch._inductor import config

        accelerator = getattr(torch, "accelerator", torch.cuda)  # since 2.6

        @functools.wraps(original)
        def codegen(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._owner.is_on() or accelerator.is_available():
                return original(graph, *args, **kwargs)
            with config.patch({_NAMED_KERNELS: True}):
                return original(graph, *args, **kwargs)

        return codegen

    def _keeping(self, original: Callable[..., None]) -> Callable[..., None]:
        from pyprof.provenance.graph_calls import record_of

        @functools.wraps(original)
        def __init__(compiled: Any, current_callable: Any, graph: Any, *args: Any, **kwargs: Any) -> None:
            original(compiled, current_callable, graph, *args, **kwargs)
            if self._owner.is_on():
                with self._careful():
                    setattr(compiled, _RECORD, record_of(graph, compiled.source_code, self._owner.shown))

        return __init__

    def _salted(self, original: Callable[..., None]) -> Callable[..., None]:
        from pyprof.provenance.compiled_backward import places

        @functools.wraps(original)
        def __init__(details: Any, *args: Any, **kwargs: Any) -> None:
            original(details, *args, **kwargs)
            if self._owner.is_on():
                details.pyprof_record = VERSION, _GENERATED, places()

        return __init__

    def _ranged(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def __call__(compiled: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            record = vars(compiled).get(_RECORD)
            if not record or not self._owner.is_on():
                return original(compiled, inputs, *args, **kwargs)
            opened: AbstractContextManager[None] = nullcontext()
            with self._careful():
                opened = self._owner.range(*self._numbered(compiled, record, inputs))
            with opened:
                return original(compiled, inputs, *args, **kwargs)

        return __call__

    def _numbered(self, compiled: Any, record: str, inputs: Any) -> tuple[str, str]:
        """The number and the record of a graph for a call; each of its sets of sizes has its own."""
        from pyprof.provenance.symbols import values_of, with_values

        known: _Known | None = vars(compiled).get(_KNOWN)
        if known is None or known.pid != os.getpid():  # a new graph, or one that another process has stored
            known = _Known(os.getpid(), dict(msgspec.json.decode(record).get("symbols", {})), {})
            setattr(compiled, _KNOWN, known)
        values = values_of(known.symbols, inputs) if known.symbols else {}
        key = tuple(values.values())
        if key not in known.records and len(known.records) >= _SIZES_MOST:
            key, values = (), {}  # the sizes are unknown from then on
        if key not in known.records:
            resolved = with_values(record, values) if known.symbols else record
            known.records[key] = f"{known.pid}.{next(_NUMBERS)}", resolved
        return known.records[key]

    @contextmanager
    def _careful(self) -> Iterator[None]:
        """The program's compilation goes on whatever the graph is like; it then has no record."""
        try:
            yield
        except _UNKNOWN as error:  # failed() raises again what a signal handler of the program raised
            self._owner.failed(error)
