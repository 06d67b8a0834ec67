"""On a CPU, the rows' time is that of the outermost ops: shown with all ops of PyTorch's op_db."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyprof.parse.kineto.reader import read  # noqa: E402
from pyprof.parse.tables.correlate import correlate  # noqa: E402
from pyprof.prof.work.annotate import annotate  # noqa: E402
from tests.op_db import op_db, runs, samples  # noqa: E402

# Outermost ops of op_db without a row: they make views, allocate, or return what they were given.
WITHOUT_ROW = set(
    """H T _conj adjoint alias alpha_dropout as_strided atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to
    cartesian_prod chunk conj contiguous data detach detach_ diagonal dropout dsplit empty empty_like
    empty_permuted empty_strided expand expand_as expand_copy feature_alpha_dropout feature_dropout flatten
    hsplit imag is_nonzero item lift_fresh linalg_diagonal mH mT matrix_H meshgrid moveaxis movedim narrow
    new_empty new_empty_strided numpy_T permute positive ravel real rename_ repeat requires_grad_ reshape
    reshape_as resize_ resize_as_ resolve_conj resolve_neg scalar_tensor select slice split split_with_sizes
    squeeze squeeze_ swapaxes t t_ tensor_split to transpose transpose_ type_as unbind unflatten unfold
    unsafe_chunk unsafe_split unsqueeze unsqueeze_ view view_as view_as_complex view_as_real vsplit
    """.split()
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    path = tmp_path_factory.mktemp("every_op") / "net.json"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        calls = [(op, sample) for op in op_db() for sample in samples(op, 3)]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            ran = sum(runs(op, sample) for op, sample in calls)
        profiler.export_chrome_trace(str(path))
    assert ran > 1500
    return read(path)


def test_the_rows_of_each_outermost_op_take_its_time(capture):
    """The outermost ops by a pass of the test's own over the ranges: an op is inside the last that has not ended."""
    ranges, scopes = capture.ranges, capture.scopes
    is_op = np.array(["::" in scope.name for scope in scopes])[ranges.scope]
    chosen = np.flatnonzero(is_op)
    order = chosen[np.lexsort((-ranges.end[chosen], ranges.start[chosen], ranges.thread[chosen]))]
    outermost, owner, thread, until = [], {}, None, -1
    for each in order.tolist():
        if ranges.thread[each] != thread or ranges.start[each] >= until:
            thread, until = ranges.thread[each], ranges.end[each]
            outermost.append(each)
        owner[each] = outermost[-1]
    in_rows = dict.fromkeys(outermost, 0)
    for row, time in zip(capture.launch_range.tolist(), capture.columns["kDuration"].tolist(), strict=True):
        if row in owner:
            in_rows[owner[row]] += time
    names = {each: scopes[ranges.scope[each]].name.removeprefix("aten::") for each in outermost}
    without = {names[each] for each in outermost if not in_rows[each]}
    assert without <= WITHOUT_ROW
    wrong = {
        names[each]: (in_rows[each], int(ranges.end[each] - ranges.start[each]))
        for each in outermost
        if in_rows[each] and in_rows[each] != ranges.end[each] - ranges.start[each]
    }
    assert wrong == {}


def counted(tmp_path, run):
    """(op, FLOPs) of each row that has some."""
    run()
    path = tmp_path / "net.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    table = correlate(read(path))
    pairs = zip(table.coded("aten").texts(), annotate(table).flops.tolist(), strict=True)
    return [(name.removeprefix("aten::"), flop) for name, flop in pairs if flop > 0]


G = torch.randn(30, 30)
SPD = G @ G.T + 30 * torch.eye(30)
TALL = torch.randn(50, 20)


@pytest.mark.parametrize(
    ("run", "right"),
    [
        (lambda: torch.linalg.cholesky(SPD), ("linalg_cholesky_ex", 9000)),  # n^3 / 3
        (lambda: torch.cholesky_inverse(SPD), ("cholesky_inverse", 18_000)),  # 2 n^3 / 3
        (lambda: torch.linalg.eig(G), ("linalg_eig", 675_000)),  # 25 n^3
        (lambda: torch.linalg.eigvals(G), ("_linalg_eigvals", 270_000)),  # 10 n^3
        (lambda: torch.geqrf(G), ("geqrf", 36_000)),  # 4 n^3 / 3
        (lambda: torch.linalg.qr(G), ("linalg_qr", 72_000)),  # 8 n^3 / 3
        # R takes 2 n^2 (m - n/3) = 34,667 for 50 x 20; Q' b and the solution 4 m n - 2 n^2 + n^2 = 3600 for each of 5
        (lambda: torch.linalg.lstsq(TALL, TALL[:, :5]), ("linalg_lstsq", 52_667)),
        # of 25 numbers: 24 + 1 for the mean, 25 differences, 25 squares, 24 + 1, a root; the sum within counts none
        (lambda: torch.std(G[:5, :5]), ("std", 101)),
        (  # each of 7 x 7 results adds its 4 x 4 elements: as many additions as elements, 2 * 3 * 28 * 28
            lambda: torch.nn.functional.adaptive_avg_pool2d(torch.zeros(2, 3, 28, 28), 7),
            ("_adaptive_avg_pool2d", 4704),
        ),
        (
            lambda: torch.nn.functional.interpolate(torch.zeros(2, 3, 28, 28), size=7, mode="area"),
            ("_adaptive_avg_pool2d", 4704),
        ),
    ],
)
def test_each_op_counts_once(tmp_path, run, right):
    assert counted(tmp_path, run) == [right]


def test_a_transposed_convolution(tmp_path):
    """2 * 2 images * 8 in * 8 out * 4 * 4 taps * 6 * 6 places = 147,456"""
    net, x = torch.nn.ConvTranspose2d(8, 8, 4, 2, 1), torch.randn(2, 8, 6, 6)
    with torch.no_grad():
        assert sum(flop for _, flop in counted(tmp_path, lambda: net(x))) == 147_456


def modes():
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return {"none": None, "dispatch mode": Mode, "FlopCounterMode": lambda: FlopCounterMode(display=False)}


@pytest.mark.parametrize("name", ["none", "dispatch mode", "FlopCounterMode"])
def test_under_a_dispatch_mode_ops_count_once(tmp_path, name):
    """Linear(64, 64) on (8, 64): 2 * 8 * 64 * 64 = 65,536 forward, twice that backward"""
    net, mode = torch.nn.Linear(64, 64, bias=False), modes()[name]

    def run():
        x = torch.randn(8, 64, requires_grad=True)
        net.weight.grad = None
        if mode is None:
            torch.relu(net(x)).sum().backward()
            return
        with mode():
            torch.relu(net(x)).sum().backward()

    assert [flop for op, flop in counted(tmp_path, run) if op == "mm"] == [65_536] * 3


def test_vmap_counts_once(tmp_path):
    """5 nets of 8 x 16 and 16 x 4 on (6, 8): 2*5*6*8*16 = 7680 and 2*5*6*16*4 = 3840, with bmm"""
    up, down, x = torch.randn(5, 16, 8), torch.randn(5, 4, 16), torch.randn(6, 8)
    found = counted(tmp_path, lambda: torch.vmap(lambda a, b: torch.tanh(x @ a.T) @ b.T)(up, down))
    assert [flop for op, flop in found if op != "tanh"] == [7680, 3840]
