"""PyTorch's memory snapshots: history, segments, stacks and annotations; files that are something else, or hostile."""

import gzip
import io
import pickle
import pickletools
import time

import pytest

from pyprof.errors import InputError
from pyprof.parse.cli import main as parse
from pyprof.parse.formats.memory_snapshot import read
from pyprof.parse.read import read_profile
from pyprof.prof.load import load_table
from pyprof.prof.memory.memory_numbers import memory_numbers
from pyprof.table.columns import NULL
from pyprof.table.container import read_container


def py(line, file="/home/me/work/nets/net.py"):
    return {"name": "step", "filename": file, "line": line}


def cpp(name):
    return {"name": name, "filename": "??", "line": 0}


FORWARD = [  # innermost first
    cpp("c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)"),
    cpp("at::_ops::native_layer_norm::call(at::Tensor const&)"),
    cpp("at::_ops::layer_norm::call(at::Tensor const&)"),
    py(2846, "/opt/venv/lib/python3.12/site-packages/torch/nn/functional.py"),
    py(12),
    py(40),
]
BACKWARD = [
    cpp("at::_ops::mm::call(at::Tensor const&, at::Tensor const&)"),
    cpp("torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor, std::allocator<at::Tensor> >&&)"),
    cpp("torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)"),
]


def event(action, addr, size, us, frames=(), **more):
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": us, "frames": list(frames), **more}


def block(size, state="active_allocated", requested=None, frames=(), **more):
    return {"size": size, "requested_size": size if requested is None else requested, "state": state,
            "frames": list(frames), **more}  # fmt: skip


def segment(*blocks, address=0x1000, device=0):
    return {"device": device, "address": address, "total_size": sum(b["size"] for b in blocks), "stream": 0,
            "segment_type": "large", "segment_pool_id": (0, 0), "blocks": list(blocks)}  # fmt: skip


def snapshot(*traces, segments=(), **more):
    return {"segments": list(segments), "device_traces": [list(trace) for trace in traces],
            "allocator_settings": {"max_split_size": -1}, **more}  # fmt: skip


def write(path, value, protocol=4):
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def table(tmp_path, value):
    return read_profile(write(tmp_path / "snapshot.pickle", value)).memory


T = 1_795_339_893_665_000
STEP = [
    event("segment_alloc", 0x1000, 2048, T, FORWARD),
    event("alloc", 0x1200, 100, T, FORWARD),  # the same microsecond
    event("alloc", 0x1400, 300, T + 5, BACKWARD),
    event("free_requested", 0x1200, 100, T + 7),
    event("free_completed", 0x1200, 100, T + 7),
    event("alloc", 0x1200, 64, T + 9),
]
# At the end 512 + 512 + 512 bytes of blocks hold 50 + 64 + 300 requested ones; the first is older than the history.
END = [segment(block(512, requested=50, frames=[py(3)]), block(512, requested=64), block(512, requested=300),
               block(512, "inactive", 0))]  # fmt: skip


def test_the_history_is_a_timeline_of_requested_bytes(tmp_path):
    found = table(tmp_path, snapshot(STEP, segments=END))
    assert found.coded("level").texts() == ["before", "driver", "allocator", "allocator", "allocator", "allocator"]
    assert found.ints("bytes").tolist() == [50, 2048, 100, 300, -100, 64]
    # 414 bytes in the end; before the history 414 - (100 + 300 - 100 + 64) = 50
    assert found.ints("allocated").tolist() == [50, 50, 150, 450, 350, 414]
    assert found.ints("reserved").tolist() == [0, 2048, 2048, 2048, 2048, 2048]
    assert found.ints("time").tolist() == [0, 1, 2, 5000, 7000, 9000]  # of one microsecond, in the file's order
    assert found.ints("peer").tolist() == [NULL, NULL, 4, NULL, 2, NULL]
    assert set(found.coded("kind").texts()) == {"cuda"}


def test_it_says_that_the_bytes_are_those_requested(tmp_path):
    found = read(write(tmp_path / "s.pickle", snapshot(STEP, segments=END)))
    text = "counts the bytes requested, not those of the blocks: 1,536 bytes hold 414 at the end"  # three of 512
    assert found.warnings == [f"a snapshot's history {text}"]


def test_stacks_tell_the_line_the_op_and_the_backward_node(tmp_path):
    found = table(tmp_path, snapshot(STEP, segments=END))
    assert found.coded("trace").texts()[2] == '["nets/net.py:40", "nets/net.py:12"]'  # outermost first, without torch's
    assert found.coded("op").texts()[2:4] == ['["layer_norm"]', '["Addmm"]']
    assert found.coded("phase").texts()[2:4] == ["forward", "backward"]
    assert found.coded("aten").texts()[2:4] == ["aten::layer_norm", "aten::mm"]
    assert found.coded("trace").texts()[0] == '["nets/net.py:3"]'  # a block's own stack


def test_annotations_tell_the_optimizer(tmp_path):
    step = [
        {"stage": "START", "name": "Optimizer.step#Adam.step", "device": 0, "time_us": T + 10},
        {"stage": "END", "name": "Optimizer.step#Adam.step", "device": 0, "time_us": T + 20},
        {"stage": "END", "name": "never begun", "device": 0, "time_us": T + 20},
    ]
    trace = [
        event("alloc", 0x1000, 8, T, BACKWARD),
        event("alloc", 0x2000, 8, T + 15),
        event("alloc", 0x3000, 8, T + 30),
    ]
    found = table(tmp_path, snapshot(trace, external_annotations=step))
    assert found.coded("phase").texts() == ["backward", "optimizer", "other"]
    assert found.coded("op").texts()[1] == '["Adam.step"]'


def test_devices_have_their_own_history(tmp_path):
    found = table(
        tmp_path,
        snapshot([event("alloc", 8, 1, T)], [event("alloc", 8, 2, T + 1), event("free_requested", 8, 2, T + 2)]),
    )
    assert found.ints("device").tolist() == [0, 1, 1]
    assert found.ints("peer").tolist() == [NULL, 2, 1]


def test_a_gzipped_snapshot_is_read(tmp_path):
    file = tmp_path / "s.pickle.gz"
    file.write_bytes(gzip.compress(pickle.dumps(snapshot(STEP, segments=END))))
    assert len(read_profile(file).memory) == 6


def test_a_snapshot_has_no_kernels_and_a_container_keeps_it(tmp_path, capsys):
    file = write(tmp_path / "s.pickle", snapshot(STEP, segments=END))
    with pytest.raises(InputError, match="found allocations alone: pyprof memory reads them"):
        load_table(file)
    assert parse([str(file), "-o", str(tmp_path / "net.pyprof"), "-q"]) == 0
    with pytest.raises(InputError, match="found allocations alone: pyprof memory reads them"):
        load_table(tmp_path / "net.pyprof")
    assert parse([str(file), "-q"]) == 1  # net.dict is the kernel table alone


def test_snapshots_of_two_processes_are_two_devices(tmp_path):
    """A snapshot does not name its process: each file is one, and its device has its own total and peak."""
    files = [
        write(tmp_path / f"{size}.pickle", snapshot([event("alloc", 0x1000, size, T)], segments=[segment(block(size))]))
        for size in (1000, 3000)
    ]
    assert parse([*map(str, files), "-q", "-o", str(tmp_path / "net.pyprof")]) == 0
    memory = read_container(tmp_path / "net.pyprof").memory
    assert memory is not None
    found = [(device.rank, device.peak_bytes, device.missing) for device in memory_numbers(memory)]
    assert found == [(1, 3000, 0), (0, 1000, 0)]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": 1}, "found a pickle of something else ('a')"),
        ([1], "found a pickle of something else (list)"),
        (snapshot([]), "found one without events"),
        ({"segments": [], "device_traces": 5}, "a list for device_traces, found 5"),
        (snapshot([7]), "records in a device's trace, found 7"),
        (snapshot([event("alloc", 8, -5, T)]), "a whole number for 'size', found -5"),
        (snapshot([event("alloc", 8, 1 << 63, T)]), "a whole number for 'size'"),
        (snapshot([event("alloc", 8, 8, "now")]), "a whole number for 'time_us', found 'now'"),
        (snapshot(STEP, segments=[segment(block(512))["blocks"]]), "records in segments"),
        (snapshot(STEP, segments=[{**segment(block(512)), "blocks": {}}]), "a list for blocks"),
        (snapshot([event("alloc", 8, 8, T, [5])]), "records in frames"),
        # sums that exceed 64 bits: 6 * 2**61 of allocations, 5 * 2**61 of segments, 6 * 2**61 of blocks
        (snapshot([event("alloc", n, 1 << 61, T) for n in range(6)]), "sizes of more than"),
        (snapshot(STEP, segments=[{**segment(), "total_size": 1 << 61}] * 5), "sizes of more than"),
        (snapshot(STEP, segments=[{**segment(*[block(1 << 61)] * 6), "total_size": 8}]), "sizes of more than"),
    ],
)
def test_what_is_no_snapshot_gets_one_line(value, words, tmp_path):
    with pytest.raises(InputError) as error:
        read(write(tmp_path / "s.pickle", value))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_small_file_that_repeats_itself_a_billion_times_is_refused(tmp_path):
    """A list of 3,000 references to one segment with 3,000 references to one block with 3,000 references to a frame."""
    frame = py(1)
    one = block(8, frames=[])
    one["frames"] = [frame] * 3000
    blocks = [one] * 3000
    whole = {**segment(block(8)), "blocks": blocks}
    file = write(tmp_path / "s.pickle", snapshot(STEP, segments=[whole] * 3000))
    assert file.stat().st_size < 100_000
    begin = time.process_time()
    with pytest.raises(InputError, match="repeats its values without end"):
        read(file)
    assert time.process_time() - begin < 5


def test_names_are_hostile(tmp_path):
    evil = "</script><img src=x>\x1b[31m\n"
    trace = [
        event("alloc", 8, 8, T, [py(3, f"/x/{evil}.py"), cpp(f"at::_ops::{evil}::call("), cpp("at::_ops::mm::call(")])
    ]
    found = table(tmp_path, snapshot(trace))
    assert found.coded("op").texts() == ['["mm"]']


def test_what_torch_writes_is_within_the_allowed_opcodes():
    """The opcodes of snapshots of PyTorch 2.11 (protocol 4), as recorded on an H200."""
    seen = set(
        "BINGET LONG_BINGET LONG1 MEMOIZE MARK BININT1 SHORT_BINUNICODE EMPTY_DICT SETITEMS BININT EMPTY_LIST APPENDS "
        "BININT2 BINUNICODE NEWFALSE TUPLE2 APPEND FRAME PROTO BINFLOAT STOP".split()
    )
    data = pickle.dumps(snapshot(STEP * 50, segments=END * 3, x={"f": 0.5, "no": False, "text": "x" * 300}), 4)
    assert {op.name for op, _, _ in pickletools.genops(io.BytesIO(data))} <= seen | {"NONE", "NEWTRUE", "SETITEM"}
