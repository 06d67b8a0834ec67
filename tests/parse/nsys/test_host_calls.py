"""The table of host calls of an nsys export: kinds, streams, events, hand-overs between threads."""

from pyprof.parse.nsys.reader import read
from pyprof.parse.read import read_profile
from pyprof.table.columns import NULL
from tests.parse.nsys import nsys_file
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, kernel, process, push, thread, write

SYNC, EVENT = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
nsys_file.COLUMNS[SYNC] = "start, end, streamId, correlationId, globalPid, syncType, eventId, eventSyncId"
nsys_file.COLUMNS[EVENT] = "streamId, correlationId, globalPid, eventId, eventSyncId"
NAMES = [
    (1, "gemm"),
    (101, "void gemm<float>(int)"),
    (50, "cudaLaunchKernel_v7000"),
    (51, "cudaEventRecord_v3020"),
    (52, "cudaStreamWaitEvent_v3020"),
    (53, "cudaStreamSynchronize_v3020"),
    (54, "cuKernelGetName"),
]
NONE = (1 << 32) - 1


def api(start, end, corr, name=50, tid=1, pid=7):
    return (start, end, 0, thread(pid, tid), corr, name)


def host(path, **tables):
    return read_profile(write(path / "net.sqlite", StringIds=NAMES, **tables), host=True).host


def test_a_wait_names_the_call_that_recorded_its_event(tmp_path):
    """Event 4 is recorded twice on stream 7, by calls 1 and 3. Stream 9 waits for the first, then for the last."""
    calls = [api(0, 4, 1, 51), api(10, 14, 2), api(20, 24, 3, 51), api(30, 34, 4, 52), api(40, 44, 5, 52)]
    found = host(
        tmp_path,
        **{
            API: [*calls, api(50, 90, 6, 53)],
            KERNEL: [kernel(60, 2)],
            EVENT: [(7, 1, process(7), 4, 11), (7, 3, process(7), 4, 12)],
            SYNC: [
                (31, 32, 9, 4, process(7), 0, 4, 11),
                (41, 42, 9, 5, process(7), 0, 4, 12),
                (51, 89, 7, 6, process(7), 0, NONE, NONE),
            ],
        },
    )
    assert found.coded("kind").texts() == ["record", "launch", "record", "wait", "wait", "stream sync"]
    assert found.ints("stream").tolist() == [7, NULL, 7, 9, 9, 7]
    assert found.ints("record").tolist() == [NULL, NULL, NULL, 0, 2, NULL]


def test_without_numbers_of_records_the_last_one_before_the_wait_counts(tmp_path):
    """Exports before 2024: event 4 of another process, and a record after the wait, do not count."""
    calls = [api(0, 4, 1, 51), api(10, 14, 2, 51), api(20, 24, 3, 52), api(30, 34, 4, 51), api(5, 9, 1, 51, pid=8)]
    events = [(7, 1, process(7), 4), (8, 2, process(7), 4), (9, 4, process(7), 4), (5, 1, process(8), 4)]
    waits = [(21, 22, 9, 3, process(7), 3, 4)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(60, 2)], EVENT: events, SYNC: waits})
    assert found.ints("record").tolist() == [NULL, NULL, 1, NULL, NULL]
    assert found.ints("stream").tolist() == [7, 8, 9, 9, 5]


def test_threads_take_turns(tmp_path):
    """Thread 2 runs the backward pass: its first call follows thread 1's second, whose third follows its last."""
    calls = [api(0, 4, 1), api(10, 14, 2), api(100, 104, 3, tid=2), api(110, 114, 4, tid=2), api(200, 204, 5)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(20, corr) for corr in range(1, 6)]})
    assert found.ints("tid").tolist() == [1, 1, 1, 2, 2]
    assert found.ints("after").tolist() == [NULL, NULL, 4, 1, NULL]


def test_threads_that_work_side_by_side_wait_for_nobody(tmp_path):
    """Thread 1 runs ops of its own while thread 2 launches, as two threads with a GPU each do."""
    calls = [api(0, 4, 1), api(100, 104, 3, tid=2), api(110, 114, 4, tid=2), api(200, 204, 5)]
    own = [push(time, time + 2, f"aten::add, op_id = {time}") for time in range(98, 118, 4)]
    other = [push(99, 106, "aten::mm, op_id = 900", tid=2), push(109, 116, "aten::mm, op_id = 901", tid=2)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(20, corr) for corr in (1, 3, 4, 5)], NVTX: [*own, *other]})
    assert found.ints("after").tolist() == [NULL, NULL, 0, NULL]  # thread 2 has no range before its first call


def test_threads_that_give_the_gpu_no_work_do_not_count(tmp_path):
    """NCCL's watchdog asks for events between the calls of thread 1."""
    calls = [api(0, 4, 1), api(100, 104, 2, 51, tid=3), api(200, 204, 3)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(20, 1), kernel(210, 3)]})
    assert (found.ints("after") == NULL).all()


def test_a_call_has_the_op_around_it(tmp_path):
    ranges = [push(5, 60, "layer:net"), push(8, 50, "aten::item, op_id = 3")]
    found = host(tmp_path, **{API: [api(10, 14, 1), api(20, 44, 2, 53)], KERNEL: [kernel(20, 1)], NVTX: ranges})
    assert found.coded("op").texts() == ['["item"]'] * 2 and found.coded("layer").texts() == ['["net"]'] * 2
    assert found.ints("duration").tolist() == [4, 24]


def test_the_table_is_made_only_where_it_is_wanted(tmp_path):
    file = write(tmp_path / "net.sqlite", StringIds=NAMES, **{API: [api(0, 4, 1)], KERNEL: [kernel(20, 1)]})
    assert read_profile(file).host is None and read(file, lean=True).calls is None


def test_a_call_without_a_name_has_no_kind(tmp_path):
    """Found by the fuzzer: the ids of names were damaged. One call is named, by which no other gets its kind."""
    calls = [api(0, 4, 1, name=999), api(10, 14, 2, name=50)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(60, 2)]})
    assert found.coded("kind").texts() == ["", "launch"]
    (tmp_path / "net.sqlite").unlink()
    assert host(tmp_path, **{API: calls[:1], KERNEL: [kernel(60, 1)]}).coded("kind").texts() == [""]


def test_the_ranges_before_a_call_are_those_since_its_threads_call_before(tmp_path):
    """Two ranges begin between the first calls of thread 1 and one before its third; thread 2 has no call before."""
    calls = [api(0, 4, 1), api(10, 14, 2), api(30, 34, 3), api(50, 54, 4, 51, tid=2)]
    ranges = [push(start, start + 1, "aten::add") for start in (5, 7, 20, 40)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(60, corr) for corr in (1, 2, 3)], NVTX: ranges})
    assert found.ints("ranges").tolist() == [0, 2, 1, 0]


def test_the_marked_calls_before_a_call_are_those_of_the_thread_that_makes_most_of_them(tmp_path):
    """Two markers begin before the second call, one of them within the other, and one before the third; that of thread
    2 is no part of thread 1's count, but its call counts what thread 1 had begun."""

    def marker(start, end, **more):
        return push(start, end, '{"v":1,"mod":"torch","op":"add","args":[]}', **more)

    calls = [api(0, 4, 1), api(10, 14, 2), api(30, 34, 3), api(50, 54, 4, 51, tid=2)]
    ranges = [marker(5, 16), marker(7, 15), marker(20, 36), marker(45, 56, tid=2)]
    found = host(tmp_path, **{API: calls, KERNEL: [kernel(60, corr) for corr in (1, 2, 3)], NVTX: ranges})
    assert found.ints("calls").tolist() == [0, 1, 2, 2]


def test_without_markers_no_calls_are_counted(tmp_path):
    found = host(tmp_path, **{API: [api(0, 4, 1)], KERNEL: [kernel(60, 1)], NVTX: [push(0, 4, "aten::add")]})
    assert found.ints("calls").tolist() == [NULL]
