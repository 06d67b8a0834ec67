"""Time the calls that edits ask for on this machine, within a budget of time (``pyprof plan --measure``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch

from pyprof.benchmark.bench import Subject, backward_of
from pyprof.benchmark.bench_result import Timing
from pyprof.benchmark.call_timer import Call, time_calls
from pyprof.benchmark.device_facts import cache_bytes, free_bytes
from pyprof.benchmark.rotation import copies_needed
from pyprof.benchmark.timed_functions import Timeable, timeable
from pyprof.benchmark.timer import Effort
from pyprof.prof.changes.measured.timed_call import COMPILED, TimedCall
from pyprof.prof.changes.measured.timings_file import LOST, CallTime
from pyprof.rerun.new_inputs import NotRecreated
from pyprof.rerun.recreate import refusals, tensors_in

EFFORT = Effort(trial_s=0.01, trials=3, burst_s=0.003, pause_s=0.01, bursts=5)
Say = Callable[[str], None]


def time_edits(calls: Iterable[TimedCall], device: torch.device, until: float, say: Say) -> list[CallTime]:
    """The time of each call; or why it could not be timed. ``until``: on ``time.monotonic()``, when to stop.

    What compiles comes last, since a compilation takes seconds.
    """
    found = []
    for call in sorted(calls, key=lambda call: call.mode == COMPILED):
        if time.monotonic() > until:
            continue  # not an answer: another run may have the time
        say(call.text[:60])
        time_of_call = _timed(call, device)
        found.append(time_of_call)
        if time_of_call.why.startswith(LOST):
            break
    return found


def _timed(call: TimedCall, device: torch.device) -> CallTime:
    import torch._functorch.config as functorch

    try:
        with refusals(), functorch.patch(donated_buffer=False):
            ready = timeable(call, device, free_bytes(device) // 4)
            with ready.around():
                timing = time_calls(lambda: _prepared(ready, device), device, EFFORT)
                if ready.whole:
                    forward = replace(ready, whole=False, made=replace(ready.made, backward=False))
                    timing = _less(timing, time_calls(lambda: _prepared(forward, device), device, EFFORT))
    except NotRecreated as error:
        return CallTime(call.text, None, why=str(error)[:300])
    except torch.OutOfMemoryError as error:
        return CallTime(call.text, None, why=f"out of memory: {str(error)[:200]}")
    finally:
        if call.mode == COMPILED:
            torch._dynamo.reset()
    if not 0 < timing.seconds < 1e4:
        return CallTime(call.text, None, why="it takes no time that can be told from that of an empty kernel")
    return CallTime(
        call.text, timing.seconds, max(timing.low_s, 1e-12), timing.high_s, timing.method, timing.clock_mhz, timing.why
    )


def _prepared(ready: Timeable, device: torch.device) -> list[Call]:
    made = ready.made
    subject = Subject(made.function, made.args, made.kwargs)
    copies = copies_needed(made.nbytes, cache_bytes(device), free_bytes(device)) if ready.rotates else 1
    subjects = [subject, *(subject.copy() for _ in range(copies - 1))]
    if ready.whole:
        return [_forward_and_backward(each) for each in subjects]
    return [backward_of(each) for each in subjects] if made.backward else list(subjects)


def _forward_and_backward(subject: Subject) -> Call:
    def run() -> object:
        result = subject()
        leaves = [tensor for tensor in tensors_in(subject.inputs) if tensor.requires_grad]
        return torch.autograd.grad([result], leaves, [seed])

    seed = torch.randn_like(subject())
    return run


def _less(whole: Timing, part: Timing) -> Timing:
    """The time of the rest of a call."""
    seconds = max(whole.seconds - part.seconds, 0.0)
    return replace(whole, seconds=seconds, low_s=max(whole.low_s - part.high_s, 0.0), high_s=whole.high_s - part.low_s)
