"""Write parse/kineto/data/cpu_ops.txt: which aten ops work on a CPU, and which only call, view or allocate.

    python tools/host_ops.py > parse/kineto/data/cpu_ops.txt      (torch 2.13, CPU; four minutes on an idle machine)

The dispatcher knows which ops have a CPU kernel, and the schemas which ops only make a view. Two kinds remain: kernels
that call others to work (relu calls clamp_min, mean calls sum), and composite ops that work themselves (copy_, the
mkldnn convolutions). So each op is called under the profiler, at two sizes, with operands made up from its schema. An
op that spends most of its time in others is a caller; one that takes longer on more data without them is a worker.

A row of a capture is a worker's call, or the call of a caller or of an unknown op that has no worker's call inside. So
the few ops that stand near a limit, and change sides from run to run, are rows either way; review the diff anyway.
"""

import os
import pickle
import select
import signal
from collections import defaultdict
from typing import Any

import torch

# Ops whose operands cannot be made up, by reading aten/src/ATen/native of 2.13.
WORKERS = """copy_ mkldnn_convolution mkldnn_linear convolution_backward mkldnn_linear_backward_input
mkldnn_linear_backward_weights _nnpack_spatial_convolution mkldnn_max_pool2d mkldnn_max_pool3d
mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight _sparse_mm_reduce_impl sparse_sampled_addmm""".split()
NO_WORK = """empty empty_strided empty_like empty_permuted empty_quantized new_empty new_empty_strided resize_
resize_as_ set_ _reshape_alias _unsafe_view _resize_output_ as_strided_ _local_scalar_dense
record_stream _efficientzerotensor pin_memory _pin_memory is_pinned lift lift_fresh _to_copy clone
contiguous resolve_conj resolve_neg detach detach_ _assert_async _functional_assert_async _version
is_same_size is_set_to _has_same_storage_numel _convolution convolution alias rand rand_like randn
randn_like randint randint_like scalar_tensor zeros zeros_like ones ones_like full full_like
new_zeros new_ones new_full unsafe_split unsafe_split_with_sizes embedding mv is_nonzero
_fused_sdp_choice _make_dep_token _foobar from_file _empty_affine_quantized
_empty_per_channel_affine_quantized _nested_compute_contiguous_strides_offsets
_test_optional_filled_intlist _test_optional_floatlist _test_optional_intlist""".split()
# Work themselves or call others, as the trace of a call shows: left out of the table.
EITHER = """stack addbmm addbmm_ normal quantized_lstm quantized_gru _native_multi_head_attention
_transformer_encoder_layer_fwd _pack_padded_sequence""".split()

SMALL, LARGE = 8, 1024  # side of a square operand


def main() -> None:
    torch.set_num_threads(1)
    work, rest = classes()
    version = torch.__version__.split("+")[0]
    print(
        f"# Made by tools/host_ops.py with torch {version}: do not edit. Op without aten::, and what it does on a CPU."
    )
    for name, role in sorted([*((name, "works") for name in work), *((name, "calls") for name in rest)]):
        print(name, role)


def classes() -> tuple[set[str], set[str]]:
    """Ops that work, and ops that never do. A CPU kernel that calls others, with the operands tried, is in neither."""
    overloads: dict[str, list[Any]] = defaultdict(list)
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and dispatched(schema):
            overloads[schema.name.removeprefix("aten::")].append(schema)
    work, rest = set(WORKERS), set(NO_WORK)
    for name, schemas in sorted(overloads.items()):
        if name in work or name in rest or name in EITHER:
            continue
        keys = {key for schema in schemas for key in ("CPU", "CompositeExplicitAutograd") if has(schema, key)}
        views = all(any(r.alias_info and not r.alias_info.is_write for r in schema.returns) for schema in schemas)
        if views or not keys:
            rest.add(name)
            continue
        verdict = measured(schemas)
        if verdict == "worker" or ("CPU" in keys and not verdict):
            work.add(name)
        elif "CPU" not in keys:
            rest.add(name)
    return work, rest


def dispatched(schema: Any) -> bool:
    """Whether it is an op, not one of TorchScript's own functions (aten::append)."""
    return bool(torch._C._dispatch_has_kernel(full_name(schema)))


def has(schema: Any, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(full_name(schema), key))


def full_name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def measured(schemas: list[Any]) -> str:
    """worker, caller or nothing, by the first overload that can be called."""
    for schema in schemas:
        result = apart(schema)
        if result:
            (small, _), (large, handed) = result
            if handed > 0.5 * large:
                return "caller"
            return "worker" if large - handed > 4 * small and large > 30 else ""
    return ""


def apart(schema: Any) -> list[tuple[float, float]]:
    """(time, time handed to others) at each size in us, measured in a process of its own: some calls crash."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        try:
            os.write(writer, pickle.dumps([timed(schema, size) for size in (SMALL, LARGE)]))
        finally:
            os._exit(0)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], 20)
    if not ready:
        os.kill(child, signal.SIGKILL)
    data = os.read(reader, 10_000) if ready else b""
    os.close(reader)
    os.waitpid(child, 0)
    return pickle.loads(data) if data else []  # noqa: S301 (our own child's)


def timed(schema: Any, size: int) -> tuple[float, float]:
    op = getattr(getattr(torch.ops.aten, schema.name.removeprefix("aten::")), schema.overload_name or "default")
    best = (float("inf"), 0.0)
    for whole in (False, True):  # floats everywhere, or whole numbers for indices
        try:
            needed = [a for a in schema.arguments if not a.has_default_value()]
            args = [operand(a, size, whole) for a in needed if not a.kwarg_only]
            kwargs = {a.name: operand(a, size, whole) for a in needed if a.kwarg_only}
            op(*args, **kwargs)
        except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
            continue
        for _ in range(3):
            with torch.autograd.profiler.profile() as profile:
                op(*args, **kwargs)
            best = min(best, outermost(profile.function_events, schema.name))
        return best
    raise SystemExit


def outermost(events: Any, name: str) -> tuple[float, float]:
    top = next(event for event in events if event.name == name and event.cpu_parent is None)
    return top.cpu_time_total, sum(handed(child) for child in top.cpu_children)


def handed(event: Any) -> float:
    """Time of an op's nested op, or of those inside, that is not a view's or an allocation's."""
    if event.name.removeprefix("aten::") in NO_WORK or not event.name.startswith("aten::"):
        return sum(handed(child) for child in event.cpu_children)
    return float(event.cpu_time_total)


def operand(argument: Any, size: int, whole: bool) -> Any:
    kind = str(argument.type)
    index = whole and any(word in argument.name for word in ("ind", "target", "offset", "lengths"))
    tensor = torch.zeros(size, size, dtype=torch.int64) if index else torch.rand(size, size) + 0.1
    operands = {
        "Tensor": tensor,
        "Optional[Tensor]": None,
        "List[Tensor]": [tensor, tensor],
        "number": 2,
        "float": 0.5,
        "bool": False,
        "str": "none",
        "int": 0 if argument.name == "dim" else 1,
        "List[int]": [size, size] if "size" in argument.name else [0],
    }
    return operands.get(kind)


if __name__ == "__main__":
    main()
