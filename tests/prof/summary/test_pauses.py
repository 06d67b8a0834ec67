"""The host's longest pauses and its waits: sums of several calls say of how many, and of what time. Times in µs."""

from pyprof.prof.summary.capture_numbers import summarise
from pyprof.prof.summary.sentences import sentences
from pyprof.prof.work.annotate import annotate
from tests.prof.changes.rules.advice_rows import table

US = 1000


def kernel(start, step, line, op):
    """A kernel of 50 whose launch, right before it, takes the host 5. Steps take 2000."""
    mark = {"markStart": 2000 * step * US, "markEnd": 2000 * (step + 1) * US}
    times = {"start": start * US, "ns": 50 * US, "apiStart": (start - 5) * US, "apiDuration": 5 * US}
    place = {"op": [op], "trace": [f"net.py:{line}"], "step": step, "stepStart": mark["markStart"]}
    return {"kShortName": "k", **times, **mark, "stepEnd": mark["markEnd"], **place}


def test_a_sum_of_pauses_says_of_how_many():
    """A pause ends with the launch, 5 before the kernel. Before line 5, the host pauses for 445 and 345 in one step
    and for 395 in the other: 592.5 per step, in 1.5 pauses. Before line 6, it does for 295 in each; before line 7, for
    700 in the second.
    """
    made = table(
        kernel(450, 0, 5, "mul"), kernel(850, 0, 5, "mul"), kernel(1200, 0, 6, "add"), kernel(1250, 0, 7, "sub"),
        kernel(2005, 1, 7, "sub"), kernel(2455, 1, 5, "mul"), kernel(2805, 1, 6, "add"),
    )  # fmt: skip
    told = [said for said in sentences(summarise(made, annotate(made))) if "pauses longest" in said]
    assert told == [
        "The host pauses longest, per step as captured: 0.5925 ms in 1.5 pauses before mul at net.py:5, 0.3500 ms in "
        "0.5 pauses before sub at net.py:7 and 0.2950 ms in 1 pause before add at net.py:6."
    ]


def test_waits_are_a_part_of_the_capture():
    """A kernel from 0 to 50 and a copy to the host until 60, which the host waits for from 40 on; launched at 95, the
    next kernel runs from 100 to 150.
    """
    copy = kernel(50, 0, 5, "item") | {"kind": "memcpy", "kShortName": "Memcpy DtoH (Device -> Pageable)"}
    copied = copy | {"ns": 10 * US, "apiStart": 40 * US, "apiDuration": 20 * US}
    made = table(kernel(0, 0, 4, "mul"), copied, kernel(100, 0, 6, "add"))
    (told,) = [said for said in sentences(summarise(made, annotate(made))) if "CPU waits" in said]
    assert told == (
        "The CPU waits 0.0200 ms of the 0.1500 ms captured for 1 copy to the host, and the GPU is idle for 0.0400 ms "
        "after it: item at net.py:5 (1)."
    )
