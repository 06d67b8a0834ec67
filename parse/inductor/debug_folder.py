"""The graphs in inductor's debug folder, as records of what the calls in their code compute.

``TORCH_COMPILE_DEBUG=1`` makes inductor write a folder per graph below ``torch_compile_debug/``. Three files are read:

* ``output_code.py``: the calls in order, and the graph's nodes that each Triton kernel computes;
* ``fx_graph_transformed.py``: the nodes with their ops, shapes and the program's lines;
* ``inductor_provenance_tracking_node_mappings.json``, where it is there (2.9 to 2.13: of forward and inference graphs):
  which nodes each call computes. Without it, they follow from the comments above a call, or from the number of the
  buffer that a library's call writes, since inductor numbers buffers in the graph's order.

The modules around an op are in none of them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from pyprof.compiled_record import Call, CompiledRecord, Operation, dtypes_of, op_name
from pyprof.errors import InputError
from pyprof.parse.inductor.graph_listing import ListedNode, nodes_of
from pyprof.parse.inductor.output_code import CodeCall, KernelText, calls_of, kernels_of

CODE, LISTING, MAPPING = "output_code.py", "fx_graph_transformed.py", "inductor_provenance_tracking_node_mappings.json"
_MOST = 256 << 20  # bytes of one file; the largest seen has 0.2 MB


class DebugGraph(NamedTuple):
    """A graph of the folder."""

    folder: str
    record: CompiledRecord


def debug_graphs(folder: Path) -> list[DebugGraph]:
    """The graphs below a folder, in the order of their folders' names.

    Raises InputError if there is none, or if a file cannot be read.
    """
    found = [_graph(path.parent) for path in sorted(folder.rglob(CODE))] if folder.is_dir() else []
    if not found:
        wanted = "expected inductor's debug folder (TORCH_COMPILE_DEBUG=1 writes torch_compile_debug)"
        raise InputError(folder, f"{wanted}, found no {CODE} in it" if folder.is_dir() else f"{wanted}, found none")
    return found


def _graph(folder: Path) -> DebugGraph:
    code = _text(folder / CODE)
    listing = folder / LISTING
    kernels = kernels_of(code)
    nodes = nodes_of(_text(listing)) if listing.is_file() else {}
    backward = "backward" in folder.name
    calls = calls_of(code)
    operations = _Operations(nodes, backward)
    found = _Nodes(nodes, kernels, _mapped(folder / MAPPING)).of(calls)
    numbers: list[tuple[int, ...]] = []
    for call, its in zip(calls, found, strict=True):
        numbers.append(numbers[-1] if call.partial else operations.of(its, _originals(call, kernels)))
    last = {number: at for at, its in enumerate(numbers) for number in its if not calls[at].partial}
    listed = [
        Call(call.kernel, its, tuple(number for number in its if last.get(number) == at))
        for at, (call, its) in enumerate(zip(calls, numbers, strict=True))
    ]
    record = CompiledRecord(tuple(listed), tuple(operations.listed), dtypes_of(code))
    return DebugGraph(folder.name, record)


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > _MOST:
            raise InputError(file, f"expected a file of inductor of at most {_MOST >> 20} MB, found a larger one")
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from error


class _Mapping(msgspec.Struct):
    cppCodeToPost: dict[str, list[str]] = {}  # call -> nodes


def _mapped(file: Path) -> dict[str, list[str]]:
    """The nodes of each call by its handle. Raises InputError if the file is damaged."""
    if not file.is_file():
        return {}
    try:
        return msgspec.json.decode(_text(file), type=_Mapping).cppCodeToPost
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InputError(
            file, f"expected inductor's mapping of kernels to nodes, found something else ({error})"
        ) from error


class _Nodes:
    """Finds the nodes that each call computes."""

    def __init__(
        self, nodes: dict[str, ListedNode], kernels: dict[str, KernelText], mapped: dict[str, list[str]]
    ) -> None:
        self._nodes, self._kernels, self._mapped = nodes, kernels, mapped
        self._place = {name: at for at, name in enumerate(nodes)}
        self._sources: dict[str, list[str]] = {}
        for kernel in kernels.values():
            self._sources.update(kernel.sources)

    def of(self, calls: Sequence[CodeCall]) -> Iterator[list[str]]:
        by_buffer = self._by_buffer(calls)
        seen: set[str] = set()
        for at, call in enumerate(calls):
            kernel = self._kernels.get(call.kernel)
            found = self._mapped.get(call.handle, [])
            if not found and kernel is not None and call.kernel not in seen:
                found = kernel.nodes
            if not found:  # a kernel that is called again, or an op of a library
                found = [by_buffer[at]] if at in by_buffer else []
            if not found and kernel is not None:
                found = [node for source in call.sources for node in self._sources.get(source, [source])]
            seen.add(call.kernel)
            yield sorted({name for name in found if name in self._place}, key=self._place.__getitem__)

    def _by_buffer(self, calls: Sequence[CodeCall]) -> dict[int, str]:
        """The nodes of libraries' ops: the n-th buffer that calls of an op write is that of the op's n-th node."""
        writing: dict[str, list[int]] = {}
        for at, call in enumerate(calls):
            if call.kernel not in self._kernels and not call.partial and call.buffer >= 0:
                writing.setdefault(op_name(call.kernel), []).append(at)
        found: dict[int, str] = {}
        for op, places in writing.items():
            nodes = [name for name, node in self._nodes.items() if node.aten == op]
            if len(nodes) == len(places):
                found.update(zip(sorted(places, key=lambda at: calls[at].buffer), nodes, strict=True))
        return found


def _originals(call: CodeCall, kernels: dict[str, KernelText]) -> tuple[str, ...]:
    """The ops of the program that a Triton kernel's nodes come from; none for a library's call, which is a node."""
    kernel = kernels.get(call.kernel)
    return call.originals or kernel.originals if kernel is not None else ()


class _Operations:
    """The operations of a graph, each numbered when it is first met."""

    def __init__(self, nodes: dict[str, ListedNode], backward: bool) -> None:
        self._nodes, self._backward = nodes, backward
        self._number: dict[Any, int] = {}
        self.listed: list[Operation] = []

    def of(self, names: Sequence[str], originals: Sequence[str]) -> tuple[int, ...]:
        """The operations that these nodes are, given the ops of the program in the order of their first nodes.

        A node whose op is among them is that op. The others are parts of those that no node is, one after the other: a
        new one begins where the program's line changes. Without ``originals``, each node is itself an op.
        """
        direct = {self._nodes[name].aten for name in names}
        decomposed = [aten for aten in originals if aten not in direct and not _is_view(aten)]
        parts = [name for name in names if self._nodes[name].aten not in originals]
        groups = list(dict.fromkeys(self._nodes[name].line for name in parts))
        known = dict(zip(groups, decomposed, strict=True)) if len(groups) == len(decomposed) else {}
        if len(decomposed) == 1:
            known = dict.fromkeys(groups, decomposed[0])
        found: list[int] = []
        for name in names:
            node = self._nodes[name]
            if _is_view(node.aten):
                continue
            whole = not originals or node.aten in originals
            key = name if whole else (tuple(names), node.line, known.get(node.line, node.aten))
            found.append(self._numbered(key, node, "" if whole else known.get(node.line, node.aten)))
        return tuple(dict.fromkeys(found))

    def _numbered(self, key: Any, node: ListedNode, aten: str) -> int:
        if key not in self._number:
            self._number[key] = len(self.listed)
            lines = (node.line,) if node.line else ()
            functions = (node.function,) if node.line else ()
            args = None if aten else node.args
            self.listed.append(
                Operation(aten or node.aten, trace=lines, functions=functions, backward=self._backward, args=args)
            )
        return self._number[key]


_VIEWS = frozenset(
    "alias as_strided detach diagonal expand permute reshape select slice split split_with_sizes squeeze t transpose "
    "unbind unfold unsqueeze view _unsafe_view".split()
)


def _is_view(aten: str) -> bool:
    return aten.rpartition("::")[2] in _VIEWS
