"""The allocations of a trace: the ops around them, their frees, totals, devices, and what is damaged."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.attribute.capture import MemoryEvents, RecordedStorage
from pyprof.parse.read import read_profile
from pyprof.parse.tables.memory_rows import in_order, peers, with_storages
from pyprof.table.columns import NULL, Coded, MemoryTable
from tests.parse.kineto.kineto_file import AUTOGRAD, MAIN, PID, begin, call, kernel, op, write, x


def memory(ts, size, address=0x1000, tid=MAIN, total=None, **more):
    """An event as Kineto writes it; ``total``: allocated after it."""
    keys = {"Addr": address, "Bytes": size, "Device Id": 0, "Device Type": 1, "Total Reserved": 4096, **more}
    keys |= {} if total is None else {"Total Allocated": total}
    return {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": PID, "tid": tid, "ts": ts,
            "args": {key: value for key, value in keys.items() if value is not None}}  # fmt: skip


def table(tmp_path, *events, **header):
    return read_profile(write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 1), *events, **header)).memory


def lists(found, *keys):
    return [found.ints(k).tolist() if k in INTS else found.coded(k).texts() for k in keys]


INTS = {"time", "bytes", "address", "device", "allocated", "reserved", "peer", "freed", "seq", "step", "pid", "tid"}


def test_a_trace_without_them_has_no_table(tmp_path):
    assert table(tmp_path) is None


def test_an_event_belongs_to_the_ops_layer_and_line_around_it(tmp_path):
    found = table(
        tmp_path,
        x("user_annotation", "layer:net", 100, 100),
        op("aten::linear", 110, 50, Sequence_number=3),
        op("aten::addmm", 120, 30, Sequence_number=3, Input_Dims=[[2, 3], [3, 4]]),
        memory(125, 512, total=512),  # in addmm
        memory(155, 512, 0x2000, total=1024),  # in linear, after addmm
        memory(180, -512, total=512),  # in the layer alone
        memory(205, -512, 0x2000, total=0),  # nowhere
    )
    op_, layer, aten, phase = lists(found, "op", "layer", "aten", "phase")
    assert op_ == ['["linear"]', '["linear"]', "", ""]
    assert layer == ['["net"]'] * 3 + [""]
    assert aten == ["aten::addmm", "aten::linear", "", ""]
    assert phase == ["forward", "forward", "other", "other"]
    assert lists(found, "time", "bytes", "allocated", "reserved", "peer", "freed", "seq") == [
        [125_000, 155_000, 180_000, 205_000],  # us -> ns
        [512, 512, -512, -512],
        [512, 1024, 512, 0],
        [4096] * 4,
        [2, 3, 0, 1],
        [180_000, 205_000, NULL, NULL],
        [3, 3, NULL, NULL],
    ]


def test_an_allocation_of_the_backward_pass_has_its_forward_ops_layer(tmp_path):
    found = table(
        tmp_path,
        x("user_annotation", "layer:net", 100, 100),
        op("aten::mm", 110, 50, Sequence_number=7, Fwd_thread_id=0),
        memory(120, 512),
        op("autograd::engine::evaluate_function: MmBackward0", 300, 50, AUTOGRAD, Sequence_number=7, Fwd_thread_id=1),
        op("MmBackward0", 305, 40, AUTOGRAD, Sequence_number=7, Fwd_thread_id=1),
        op("aten::mm", 310, 20, AUTOGRAD),
        memory(315, 1024, 0x2000, AUTOGRAD),
        memory(348, -512, tid=AUTOGRAD),  # autograd's engine releases what the node saved
    )
    assert lists(found, "phase", "dir", "layer", "op", "seq") == [
        ["forward", "backward", "backward"],
        ["fprop", "bprop", "bprop"],
        ['["net"]'] * 3,
        ['["mm"]'] * 3,
        [7, 7, 7],
    ]


def test_the_files_order_does_not_matter(tmp_path):
    """Kineto groups the events by thread."""
    found = table(tmp_path, memory(50, -512, tid=AUTOGRAD), memory(20, 512), memory(10, 64, 0x9000))
    assert lists(found, "time", "bytes", "peer") == [[10_000, 20_000, 50_000], [64, 512, -512], [NULL, 2, 1]]


def test_an_address_is_used_again_and_freed_without_an_allocation(tmp_path):
    found = table(
        tmp_path,
        memory(10, -256),  # allocated before the capture
        memory(20, 512),
        memory(30, -512),
        memory(40, 128),
        memory(50, 64),  # the free of the 128 bytes is missing
    )
    assert lists(found, "peer") == [[NULL, 2, 1, NULL, NULL]]


def test_devices_are_kept_apart(tmp_path):
    cpu = {"Device Type": 0, "Device Id": -1}
    found = table(
        tmp_path,
        memory(10, 512),
        memory(20, 256, **cpu),  # the same address on the CPU
        memory(30, 128, **{"Device Id": 1}),
        memory(40, -512),
        memory(50, 8, 0x5000, **{"Device Type": 6}),
        memory(60, 8, 0x6000, **{"Device Type": 77}),
    )
    assert lists(found, "kind", "device", "peer") == [
        ["cuda", "cpu", "cuda", "cuda", "hip", "device type 77"],
        [0, 0, 1, 0, 0, 0],
        [3, NULL, NULL, 0, NULL, NULL],
    ]


def test_a_trace_of_2021_has_neither_addresses_nor_totals(tmp_path):
    old = {"Addr": None, "Total Reserved": None}
    event = memory(10, 512, **old)
    del event["cat"]
    parsed = read_profile(write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 20), event, memory(15, -512, **old)))
    assert lists(parsed.memory, "peer", "allocated", "address") == [[NULL, NULL]] * 3
    assert any("no addresses" in text for text in parsed.notes.warnings)


def test_wrong_values_are_unknown_and_said(tmp_path):
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 20), memory(5, 512), memory(6, 1, Bytes="x"))
    parsed = read_profile(file)
    assert parsed.memory.ints("bytes").tolist() == [512]
    assert any("1 memory events have no number of bytes" in text for text in parsed.notes.warnings)


def test_a_damaged_trace_keeps_them(tmp_path):
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 20), memory(5, 512, total=512), call(7, 1))
    text = file.read_text()
    file.write_text(text[: text.rindex('"correlation"')])  # cut within the last event
    found = read_profile(file).memory
    assert lists(found, "bytes", "allocated", "aten") == [[512], [512], ["aten::mm"]]


def test_times_since_1970_stay_exact(tmp_path):
    file = tmp_path / "net.json"
    text = json.dumps({"traceEvents": [begin(0), op("aten::mm", 0, 20), memory(5, 512)]})
    text = text.replace('"ts": 0', '"ts": 1790857026000000.523').replace('"ts": 5', '"ts": 1790857026000005.524')
    file.write_text(text)
    assert read_profile(file).memory.ints("time").tolist() == [5001]  # 5.001 us; as floats they are 0.25 us apart


def test_kernels_are_the_same_with_and_without_memory(tmp_path):
    events = [begin(0), op("aten::mm", 10, 20, External_id=1), call(12, 1), kernel(20, 5, 1)]
    plain = read_profile(write(tmp_path / "a.json", *events)).table
    with_memory = read_profile(write(tmp_path / "b.json", *events, memory(11, 512))).table
    for key, column in plain.columns.items():
        other = with_memory.columns[key]
        if isinstance(column, Coded):
            assert column.texts() == other.texts(), key
        elif isinstance(column, np.ndarray):
            assert np.array_equal(column, other, equal_nan=column.dtype.kind == "f"), key


# What pyprof's own collector records


def recorded(**storage):
    whole = {"address": 0x1000, "bytes": 512, "kind": "cuda", "device": 0, "category": "parameters", "name": "a.weight",
             "layer": ["Net", "a"], **storage}  # fmt: skip
    return {"memory": {"version": 1, "storages": [whole]}}


def test_a_recorded_tensor_names_the_block_that_is_alive_at_the_end(tmp_path):
    found = table(tmp_path, memory(10, 512), memory(20, -512), memory(30, 512), pyprof=recorded())
    assert lists(found, "category", "name", "layer") == [
        ["", "", "parameters"], ["", "", "a.weight"], ["", "", '["Net","a"]'],
    ]  # fmt: skip


def test_a_tensor_lies_in_a_block_of_the_allocator_not_in_the_drivers(tmp_path):
    """The driver's memory may begin at the same address, and be recorded later."""
    file = write(tmp_path / "net.json", begin(0), op("aten::mm", 0, 1), memory(10, 512), pyprof=recorded())
    allocated = read_profile(file).memory
    driver = MemoryTable(1, {**allocated.columns, "level": Coded.of(["driver"]), "category": Coded.of([""])})
    storages = [RecordedStorage(0x1000, 512, "cuda", 0, "gradients", "b.weight", "")]
    both = MemoryTable.concat([allocated.with_column("category", Coded.of([""])), driver])
    assert with_storages(both, storages).coded("category").texts() == ["gradients", ""]


def test_a_recorded_tensor_without_an_allocation_is_older_than_the_capture(tmp_path):
    found = table(tmp_path, memory(10, 512, 0x9000), memory(20, -512, 0x9000), pyprof=recorded(bytes=1024))
    assert lists(found, "level", "bytes", "category", "peer", "time") == [
        ["before", "allocator", "allocator"],
        [1024, 512, -512],
        ["parameters", "", ""],
        [NULL, 2, 1],
        [10_000, 10_000, 20_000],
    ]


@pytest.mark.parametrize(
    "wrong",
    [{"memory": {"version": 9}}, {"memory": 5}, {"memory": {"version": 1, "storages": [{"address": -1}]}}, [1]],
)
def test_a_record_that_cannot_be_read_is_left_out_and_said(wrong, tmp_path):
    parsed = read_profile(write(tmp_path / "n.json", begin(0), op("aten::mm", 0, 9), memory(1, 512), pyprof=wrong))
    assert parsed.memory.coded("category").texts() == [""]
    assert any("left out" in text for text in parsed.notes.warnings)


# Invariants


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 4), st.booleans()), max_size=60))
def test_a_free_ends_the_last_allocation_at_its_address(events):
    """Against the definition, with a dictionary of what is alive."""
    time = np.array([t for t, _, _ in events], np.int64)
    size = np.array([8 if gets else -8 for _, _, gets in events], np.int64)
    zero = np.zeros(len(events), np.int64)
    same = Coded(zero.astype(np.int32), ["x"])
    address = np.array([a for _, a, _ in events], np.int64)
    ordered = in_order(MemoryEvents(zero, time, size, address, same, zero, same))
    found = peers(ordered, zero)
    last: dict[int, int] = {}  # the last event at each address
    expected = [NULL] * len(events)
    for i, (a, n) in enumerate(zip(ordered.address.tolist(), ordered.bytes.tolist(), strict=True)):
        if n < 0 and a in last and ordered.bytes[last[a]] > 0:
            expected[i], expected[last[a]] = last[a], i
        last[a] = i
    assert found.tolist() == expected
    alive = ordered.bytes[(ordered.bytes > 0) & (found == NULL)].sum()
    unknown = ordered.bytes[(ordered.bytes < 0) & (found == NULL)].sum()
    assert ordered.bytes.sum() == alive + unknown  # pairs cancel out
