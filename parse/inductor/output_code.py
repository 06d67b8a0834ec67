"""The calls in the code that inductor generated (``output_code.py``), and the nodes that its Triton kernels compute.

    # Source node to ATen node mapping:
    #   relu => relu
    # Graph fragment:
    #   %relu : Tensor "f32[8, 4][4, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.relu.default](..
    triton_poi_fused_relu_0 = async_compile.triton('triton_poi_fused_relu_0', '''
    ..
            # Topologically Sorted Source Nodes: [relu], Original ATen: [aten.relu]
            # [Provenance debug handles] triton_poi_fused_relu_0:2
            triton_poi_fused_relu_0.run(buf0, buf2, 8388608, stream=stream0)

The comments are inductor's own (torch/_inductor/utils.py, get_kernel_metadata). Seen in 2.11 and 2.13; the handles came
with 2.9. The code is read as text and not run.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

_MAPPED = re.compile(r"^#   (\S*) => (.+)$")
_FRAGMENT = re.compile(r"^#   %(\w+) .*?= call_function\[target=")
_ORIGINALS = re.compile(r"Original ATen: \[([^\]]*)\]")
_SOURCES = re.compile(r"Source Nodes: \[([^\]]*)\]")
_DEFINED = re.compile(r"^(\w+) = async_compile\.\w+\(")
_HANDLE = re.compile(r"# \[Provenance debug handles\] (\S+)$")
_CALL = re.compile(r"^(?:\w+ = )?((?:extern_kernels|torch\.ops)\.[\w.]+|\w+\.run)\((.*)$")
_CPP = re.compile(r"^(cpp_fused\w*)\((.*)$")
_OUT = re.compile(r"out=(?:reinterpret_tensor\()?buf(\d+)|^buf(\d+) = ")
_PARTIAL = re.compile(r"^buf\d+ = workspace_\d+\[[^\]]*\]\.view\([^)]*\)\.(\w+)\(dim=0\)")
_BODY = ("def call(", "def partition_")


@dataclass
class KernelText:
    """What the comments above a kernel's definition say."""

    nodes: list[str] = field(default_factory=list)  # in the graph's order
    originals: tuple[str, ...] = ()  # aten::gelu, in the order of their first nodes
    sources: dict[str, list[str]] = field(default_factory=dict)  # node of the traced program -> nodes of the graph


class CodeCall(NamedTuple):
    """One call in the code: the kernel as in ``Call.kernel``, and what the comments above the call say."""

    kernel: str
    sources: tuple[str, ...] = ()
    originals: tuple[str, ...] = ()
    handle: str = ""  # triton_poi_fused_relu_0:2
    buffer: int = -1  # the number of the buffer that it writes, if the call names it
    partial: bool = False  # a sum over the partial results of the kernel called before


def kernels_of(text: str) -> dict[str, KernelText]:
    """The kernels that the code defines."""
    found: dict[str, KernelText] = {}
    current = KernelText()
    for line in text.splitlines():
        if line.startswith("#"):
            _comment(line, current)
        elif match := _DEFINED.match(line):
            found.setdefault(match[1], current)
            current = KernelText()
    return found


def _comment(line: str, kernel: KernelText) -> None:
    if mapped := _MAPPED.match(line):
        kernel.sources[mapped[1]] = [name.strip() for name in mapped[2].split(",")]
    elif fragment := _FRAGMENT.match(line):
        kernel.nodes.append(fragment[1])
    elif originals := _ORIGINALS.search(line):
        kernel.originals = _atens(originals[1])


def _atens(text: str) -> tuple[str, ...]:
    """``aten.gelu, prims.iota`` -> aten::gelu, prims::iota."""
    return tuple(name.strip().replace(".", "::", 1) for name in text.split(",") if name.strip())


def calls_of(text: str) -> list[CodeCall]:
    """The calls of kernels and of library ops, in the order of the code."""
    found: list[CodeCall] = []
    inside = False
    told = CodeCall("")
    for raw in text.splitlines():
        line = raw.strip()
        if line.startswith("def "):
            inside = line.startswith(_BODY)
        if not inside:
            continue
        if line.startswith("#"):
            told = _told(line, told)
        elif (partial := _PARTIAL.match(line)) and found:
            found.append(CodeCall(f"torch.ops.aten.{partial[1]}", partial=True))
        elif match := _CALL.match(line) or _CPP.match(line):
            out = _OUT.search(line)
            buffer = int(next(filter(None, out.groups()))) if out else -1
            found.append(told._replace(kernel=match[1].removesuffix(".run"), buffer=buffer))
            told = CodeCall("")
    return found


def _told(line: str, told: CodeCall) -> CodeCall:
    """What a comment adds to what those above it say of the next call."""
    if handle := _HANDLE.match(line):
        return told._replace(handle=handle[1])
    sources, originals = _SOURCES.search(line), _ORIGINALS.search(line)
    if sources is None or originals is None:
        return told
    names = tuple(name.strip() for name in sources[1].split(",") if name.strip())
    return told._replace(sources=names, originals=_atens(originals[1]))
