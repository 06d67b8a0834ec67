"""Steps that were timed before the profiler started, as a Parquet file's metadata has them."""

import pytest

from pyprof.parse.formats.measured_steps import of_trace
from pyprof.table.measured_steps import MeasuredStep, TimedCalls, from_json, to_json

CALLS = TimedCalls(("mm", "relu"), (0, 1, 0), (5, 6, 7), (10, 20, 30), 4)
STEP = MeasuredStep(8, 90, 100, alone=True, calls=CALLS)


def test_what_is_written_is_read_again():
    steps = (MeasuredStep(1, 5, None), STEP)
    assert from_json(to_json(steps)) == steps


def test_the_record_of_a_trace_has_three_numbers_per_call():
    own = (
        b'{"steps":{"version":1,"steps":[{"number":8,"host_ns":90,"gpu_ns":100,"alone":true,"calls":{"names":["mm","relu"],'
        b'"calls":[0,5,10,1,6,20,0,7,30],"end_ns":4}}]}}'
    )
    assert of_trace(own) == ((STEP,), [])


@pytest.mark.parametrize(
    "damaged",
    [
        TimedCalls(("mm",), (1,), (5,), (5,), 4),  # no such name
        TimedCalls(("mm",), (0, 0), (5,), (5,), 4),
        TimedCalls(("mm",), (0,), (-5,), (5,), 4),
        TimedCalls(("mm",), (0,), (5,), (1 << 60,), 4),
        TimedCalls(("mm",), (0,), (5,), (5,), -1),
    ],
)
def test_damaged_calls_are_refused_in_our_own_files_and_left_out_of_traces(damaged):
    assert not damaged.is_possible()
    with pytest.raises(ValueError, match="calls of a step are damaged"):
        from_json(to_json([MeasuredStep(1, 5, None, calls=damaged)]))
    calls = b'{"names":["mm"],"calls":[1,2,3],"end_ns":4}'
    own = b'{"steps":{"version":1,"steps":[{"number":8,"host_ns":9,"calls":' + calls + b"}]}}"
    assert of_trace(own)[0][0].calls is None
