"""Which functions are marked, and under which name: all that a torch function mode sees, except those listed below.

A target has the name that users write, for example `torch.nn.functional.linear` for the builtin `torch._C._nn.linear`.
`a + b` is called `Tensor.add`, since this is the function that PyTorch runs.
"""

import inspect
from collections.abc import Callable, Iterator
from types import MethodWrapperType
from typing import TYPE_CHECKING, Any

from pyprof.capture.sinks import Entry
from pyprof.marker import Marker, format_marker

if TYPE_CHECKING:
    from pyprof.capture.same_calls import SameCall

# Functions that are never marked, grouped by reason. docs/explanation/marking.md prints this table.
NOT_MARKED: dict[str, str] = {
    "reads metadata: no kernel, no backward": (
        "size dim ndimension numel nelement stride storage_offset element_size get_device data_ptr const_data_ptr "
        "storage untyped_storage _typed_storage storage_type dim_order is_complex is_floating_point is_signed is_conj "
        "is_neg is_inference is_contiguous is_coalesced is_pinned is_shared is_set_to is_same_size is_distributed "
        "is_tensor is_storage sparse_dim dense_dim _nnz _dimI _dimV _is_view qscheme q_scale q_zero_point "
        "q_per_channel_axis result_type can_cast promote_types __len__ __hash__ __dir__ __dlpack_device__ "
        "_nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets get_default_dtype "
        "sym_float sym_int sym_ite sym_max sym_min sym_not sym_sum _sym_sqrt _is_zerotensor _has_symbolic_sizes_strides"
    ),
    "changes autograd's books or hooks: no kernel": (
        "requires_grad_ register_hook register_post_accumulate_grad_hook retain_grad detach detach_ record_stream "
        "_set_grad_enabled _set_view_replay_enabled is_grad_enabled set_grad_enabled _enter_autocast _exit_autocast "
        "_make_subclass __setstate__ share_memory_ _use_new_zip_file_serialization _force_original_view_tracking"
    ),
    "a range of PyTorch's own, which is there already": (
        "_record_function_enter _record_function_enter_new _record_function_exit _record_function_exit._RecordFunction"
    ),
    "runs the user's own code, whose calls are marked one by one": "backward apply_ map_ map2_",
    "makes no tensor": "device",
    "prints or pickles": "__repr__ __format__ __reduce_ex__ __reduce__ _reduce_ex_internal",
}
_NAMES = frozenset(name for names in NOT_MARKED.values() for name in names.split())


Parameters = list[tuple[str, bool]]  # (name, whether it takes a tensor) per positional parameter


class Target:
    """A function that is marked, and the markers of its distinct calls so far."""

    __slots__ = ("_bare", "cache", "expected", "func", "last", "mod", "op", "parameters")

    def __init__(self, func: Any, mod: str, op: str) -> None:
        self.func = func
        self.mod = mod
        self.op = op
        self.parameters: list[Parameters] | None = None  # one per overload; describe.py looks them up
        self.cache: dict[tuple[Any, ...], Entry] = {}
        self._bare: Entry | None = None
        self.last: SameCall | None = None  # these two belong to same_calls.py
        self.expected: SameCall | None = None

    def bare_entry(self) -> Entry:
        """The marker of a call whose arguments could not be described."""
        if self._bare is None:
            self._bare = Entry(format_marker(Marker(self.mod, self.op)))
        return self._bare


class Targets:
    """Function -> Target, or None if it is not marked. Filled as functions are called."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}
        self._public: dict[Any, list[tuple[str, str]]] = {}  # function -> its names
        for mod, op, func in _public_functions():
            self._public.setdefault(func, []).append((mod, op))

    def add(self, func: Callable[..., Any]) -> Target | None:
        target = None
        if not isinstance(func, MethodWrapperType):  # a property: `x.shape` is getset_descriptor.__get__
            mod, op = _best_name(func, self._public.get(func, [])) or _own_name(func)
            target = None if op in _NAMES else Target(func, mod, op)
        if len(self.known) < 100_000:  # a limit, since a program may create functions without end
            self.known[func] = target
        return target


def _best_name(func: Any, names: list[tuple[str, str]]) -> tuple[str, str] | None:
    """The last name, or the function's own beside it: builtins of one C function are equal, as torch.mm and torch.spmm
    are, and PyTorch hands over the one that the C function is named after."""
    if not names:
        return None
    own = (names[-1][0], str(getattr(func, "__name__", "_")))
    return own if own in names and not own[1].startswith("_") else names[-1]


def _public_functions() -> Iterator[tuple[str, str, Any]]:
    """Every public function of PyTorch with its names. The last name yielded for a function is its best-known one."""
    import torch

    first = (torch._C._special, torch.functional, torch, torch.nn.init, torch.special, torch.linalg, torch.fft)
    owners: tuple[Any, ...] = (*first, torch.sparse, torch.nn.functional, torch.Tensor)
    for owner in owners:
        mod = "torch" if owner is torch.functional else owner.__name__
        for name in dir(owner):
            func = inspect.getattr_static(owner, name, None) if owner is torch.Tensor else vars(owner).get(name)
            private = name.startswith("__") and owner is not torch.Tensor
            if callable(func) and not inspect.isclass(func) and not private:
                yield mod, name, func


def _own_name(func: Any) -> tuple[str, str]:
    """The name stored in the function object itself: `torch.ops.aten` and `add.Tensor` for an op overload."""
    op = getattr(func, "__name__", None) or type(func).__name__
    namespace = getattr(func, "namespace", None)
    if isinstance(namespace, str):  # an OpOverload or a higher-order op
        return f"torch.ops.{namespace}", str(op)
    qualified = getattr(func, "_qualified_op_name", None)
    if isinstance(qualified, str):  # an OpOverloadPacket: "aten::add"
        return f"torch.ops.{qualified.split('::')[0]}", str(op)
    mod = str(getattr(func, "__module__", None) or "torch")
    return ("torch.distributed" if mod.startswith("torch.distributed.") else mod), str(op)
