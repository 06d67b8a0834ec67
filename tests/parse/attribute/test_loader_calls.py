"""The column ``batches``: when the program asked a DataLoader for a batch, of traces made by hand. Times are µs."""

import json

from pyprof.prof.load import load_table
from tests.parse.kineto import kineto_file as kineto

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
LAUNCHED = (1050, 1200, 1300)  # each kernel's launch


def load(name, ts, dur, **of):
    return kineto.x("user_annotation", name, ts, dur, **of)


def batches(tmp_path, *events):
    """The column's lists, row by row; times in µs, as in the events."""
    launches = [kineto.call(ts, number) for number, ts in enumerate(LAUNCHED)]
    kernels = [kineto.kernel(2000 + 100 * number, 50, number) for number in range(len(LAUNCHED))]
    file = kineto.write(tmp_path / "net.json", kineto.begin(900), *events, *launches, *kernels)
    table = load_table(file).table
    zero = int(table.ints("apiStart")[0]) - 1000 * LAUNCHED[0]
    lists = [json.loads(text or "[]") for text in table.coded("batches").texts()]
    return [[(kind, *((ns - zero) / 1000 for ns in times)) for kind, *times in each] for each in lists]


def test_a_call_is_in_the_row_of_the_next_launch(tmp_path):
    found = batches(tmp_path, load(SINGLE, 1000, 40), load(SINGLE, 1210, 60))
    assert found == [[(0, 1000, 1040)], [], [(0, 1210, 1270)]]


def test_worker_processes_are_told_by_the_iterators_name(tmp_path):
    assert batches(tmp_path, load(WORKERS, 1100, 90)) == [[], [(1, 1100, 1190)], []]


def test_several_calls_before_one_launch(tmp_path):
    """As for micro-batches that are gathered first."""
    found = batches(tmp_path, load(SINGLE, 1060, 40), load(SINGLE, 1110, 50))
    assert found == [[], [(0, 1060, 1100), (0, 1110, 1160)], []]


def test_a_call_after_the_last_launch_is_in_its_row(tmp_path):
    assert batches(tmp_path, load(WORKERS, 1400, 100)) == [[], [], [(1, 1400, 1500)]]


def test_a_loader_that_wraps_another_one_counts_once(tmp_path):
    found = batches(tmp_path, load(WORKERS, 1100, 90), load(SINGLE, 1110, 70))
    assert found == [[], [(1, 1100, 1190)], []]


def test_calls_of_another_process_are_not_the_rows(tmp_path):
    assert batches(tmp_path, load(SINGLE, 1000, 40, pid=8)) == [[], [], []]


def test_other_annotations_are_no_calls(tmp_path):
    assert batches(tmp_path, load("dataloader", 1000, 40), load("## forward ##", 1100, 50)) == [[], [], []]
