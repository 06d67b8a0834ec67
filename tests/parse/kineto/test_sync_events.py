"""CUDA's synchronisations in a torch.profiler trace (enable_cuda_sync_events=True)."""

from pyprof.parse.read import read_profile
from pyprof.table.columns import NULL
from tests.parse.kineto.kineto_file import MAIN, PID, begin, call, kernel, op, write, x


def api(name, ts, corr):
    return x("cuda_runtime", name, ts, 1, correlation=corr)


def sync(name, ts, dur, **args):
    """As libkineto writes them: keys with underscores."""
    args = {"cuda_sync_kind": name, "device": 0, **args}
    return {"ph": "X", "cat": "cuda_sync", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def host(path, *events):
    return read_profile(write(path / "net.json", begin(0), op("aten::mm", 0, 99), *events), host=True).host


def test_a_wait_names_its_stream_and_the_call_that_recorded_the_event(tmp_path):
    wait = {"stream": 20, "correlation": 4, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 3}
    found = host(
        tmp_path,
        call(10, 2),
        kernel(30, 5, 2),
        api("cudaEventRecord", 20, 3),
        api("cudaStreamWaitEvent", 22, 4),
        api("cudaStreamSynchronize", 40, 5),
        sync("Stream Wait Event", 23, 1, **wait),
        sync("Stream Sync", 40, 5, stream=7, correlation=5, wait_on_stream=-1, wait_on_cuda_event_record_corr_id=-1),
    )
    assert found.coded("kind").texts() == ["launch", "record", "wait", "stream sync"]
    assert found.ints("stream").tolist() == [NULL, 7, 20, 7]
    assert found.ints("record").tolist() == [NULL, NULL, 1, NULL]


def test_without_them_streams_are_unknown(tmp_path):
    found = host(tmp_path, call(10, 2), kernel(30, 5, 2), api("cudaStreamSynchronize", 40, 5))
    assert (found.ints("stream") == NULL).all() and (found.ints("record") == NULL).all()
    assert found.ints("start").tolist() == [10_000, 40_000] and found.ints("duration").tolist() == [5000, 1000]
    assert set(found.ints("pid").tolist()) == {PID} and set(found.ints("tid").tolist()) == {MAIN}


def test_a_value_of_another_type_is_unknown(tmp_path):
    wrong = sync("Stream Sync", 40, 5, stream=[7], correlation=5, wait_on_stream="x")
    found = host(tmp_path, call(10, 2), kernel(30, 5, 2), api("cudaStreamSynchronize", 40, 5), wrong)
    assert len(found) == 2
