"""Captures of CUDA graphs under nsys before its range: what is pushed when the range begins."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import pyprof  # noqa: E402
from pyprof.capture import session  # noqa: E402
from pyprof.capture.autograd_ranges import AutogradRanges  # noqa: E402
from pyprof.capture.graph_captures import UNTOLD  # noqa: E402
from pyprof.captured_record import CAPTURED_RANGE, CLOCK_RANGE, CapturedRecord, clock_ns, unpacked  # noqa: E402
from pyprof.range_pieces import Piece, piece_in  # noqa: E402
from tests.capture.conftest import Domain  # noqa: E402
from tests.capture.test_graph_captures import Graph, capture  # noqa: E402


@pytest.fixture(autouse=True)
def graph_class(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Graph]]:
    before = dict(vars(Graph))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    yield Graph
    pyprof.deinit()
    assert dict(vars(Graph)) == before  # everything was put back


def torch_profiler_is_on() -> bool:
    return bool(torch._C._autograd._profiler_enabled())


def told(domain: Domain) -> CapturedRecord | None:
    pieces = [piece_in(text, CAPTURED_RANGE) for _, text in domain.seen if text.startswith(CAPTURED_RANGE)]
    return unpacked([one for one in pieces if one is not None])


def test_a_capture_before_the_range_is_told_when_the_range_begins(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    graph = Graph()
    torch.ones(7).sin()
    capture(graph)
    torch.ones(7).cos()
    assert told(domain) is None
    pyprof.start()
    record = told(domain)
    assert record is not None
    (ranges,) = record.captures
    texts = [record.texts[each[3]] for each in ranges]
    assert any(re.fullmatch(r"aten::gelu(, seq = \d+)?, op_id = 0, sizes = \[\[3, 4\], \[\]\]", text) for text in texts)
    assert "layer:Net" in texts and any(text.startswith('{"v":') for text in texts)
    assert not any("aten::sin" in text or "aten::cos" in text for text in texts)  # outside of the capture
    clocks = [clock for _, text in domain.seen if (clock := clock_ns(text)) is not None]
    last = max(start + duration for _, start, duration, _ in ranges)
    assert len(clocks) == 5 and 0 < clocks[0] - last < 60e9  # one clock: told after it ended, within a minute
    pyprof.stop()


def test_a_range_that_never_begins_is_said(domain: Domain, capfd: pytest.CaptureFixture[str]) -> None:
    """As where nsys collects from the first line on: PyTorch's own ranges make way while a capture is recorded."""
    pyprof.init(sink="nvtx")
    capture(Graph())
    pyprof.deinit()
    assert UNTOLD.format("1 capture") in capfd.readouterr().err
    pyprof.init(sink="nvtx", graphs=False)
    capture(Graph())
    pyprof.deinit()
    pyprof.init(sink="nvtx")
    capture(Graph())
    pyprof.start()
    pyprof.stop()
    pyprof.deinit()
    assert "graphs=False" not in capfd.readouterr().err


def test_each_range_of_the_tool_is_told(domain: Domain) -> None:
    """With --capture-range-end=repeat, nsys writes a report of each."""
    pyprof.init(sink="nvtx")
    capture(Graph())
    pyprof.start()
    pyprof.stop()
    first = len(domain.seen)
    capture(Graph())  # nsys has collected already, as for a report of the capture of its own
    pyprof.start()
    begin = domain.seen[first:]
    domain.seen[:] = begin
    record = told(domain)
    assert record is not None and len(record.captures) == 1
    pyprof.stop()


def test_nothing_is_told_if_that_is_not_wanted_or_nothing_was_captured(domain: Domain) -> None:
    for options, captures in (({"graphs": False}, 1), ({}, 0)):
        pyprof.init(sink="nvtx", **options)
        for _ in range(captures):
            capture(Graph())
        pyprof.start()
        pyprof.stop()
        pyprof.deinit()
    assert not any(text.startswith(CAPTURED_RANGE) for _, text in domain.seen)


def test_the_programs_own_profiler_goes_first(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    with torch.profiler.profile() as theirs:
        capture(Graph())
    assert "aten::gelu" in {event.key for event in theirs.key_averages()}
    pyprof.start()
    assert told(domain) is None
    pyprof.stop()


def test_the_embedded_collector_records_by_itself(domain: Domain, tmp_path: Any) -> None:
    pyprof.init(sink="nvtx")
    with pyprof.profile(tmp_path / "net.json", wait=True):
        capture(Graph())
        pyprof.start()
        pyprof.stop()
    assert told(domain) is None
    active = session.current()
    assert active is not None and active.profiler is None


def test_a_record_that_cannot_be_made_leaves_the_program_alone(
    domain: Domain, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_args: Any) -> Any:
        raise OSError(28, "No space left on device")

    pyprof.init(sink="nvtx")
    capture(Graph())
    monkeypatch.setattr(torch.autograd.profiler.profile, "export_chrome_trace", full)
    pyprof.start()
    pyprof.stop()
    assert told(domain) is None
    assert (
        "is not recorded, and its kernels will have no op: [Errno 28] No space left on device\n"
        in capfd.readouterr().err
    )


def test_lists_of_tensors_are_flat_as_in_nvtx(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    graph, x = Graph(), torch.ones(3, 4, requires_grad=True)
    graph.capture_begin()
    torch.cat([x, x])
    graph.capture_end()
    pyprof.start()
    record = told(domain)
    assert record is not None
    (text,) = (text for text in record.texts if text.startswith("aten::cat,"))
    name, _, rest = text.partition(", seq = ")
    number, _, rest = rest.partition(",")
    assert (name, number.isdecimal(), rest) == ("aten::cat", True, " op_id = 0, sizes = [[3, 4], [3, 4], []]")
    pyprof.stop()


def test_lists_of_numbers_are_told_which_nvtx_leaves_out(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    graph, x = Graph(), torch.ones(3, 4)
    graph.capture_begin()
    x.sum(0), x.sum(1, keepdim=True), x.add(x, alpha=2), torch.cat([x, x], 1)
    graph.capture_end()
    pyprof.start()
    record = told(domain)
    assert record is not None
    named = [(text.partition(",")[0], each) for text, each in zip(record.texts, record.lists, strict=True)]
    assert [each for name, each in named if name == "aten::sum"] == [("", "[0]", "", ""), ("", "[1]", "", "")]
    assert [each for name, each in named if name in ("aten::add", "aten::cat")] == [(), ()]
    pyprof.stop()


class Nested(torch.autograd.Function):
    """A backward within a backward and so on, until autograd runs the innermost one on a thread of its own (60)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, depth: int, innermost: Any) -> torch.Tensor:
        ctx.rest = depth - 1, innermost
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        depth, innermost = ctx.rest
        if depth == 0:
            innermost()
        else:
            backward(depth, innermost)
        return gradient, None, None


def backward(depth: int, innermost: Any) -> None:
    with torch.enable_grad():
        x = torch.ones(2, requires_grad=True)
        Nested.apply(x, depth, innermost).sum().backward()


@pytest.fixture
def own_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PyTorch without a GPU cannot push to NVTX. Its ranges for VTune (ITT) take their place."""
    made = AutogradRanges(torch.autograd.ProfilerState.ITT)
    monkeypatch.setattr(AutogradRanges, "of_nvtx", staticmethod(lambda: made))


@pytest.mark.usefixtures("own_ranges")
def test_a_capture_in_the_backward_pass_that_follows_one(domain: Domain) -> None:
    """As of torch.compile's mode reduce-overhead: the forward pass captures a graph, and then the backward pass one."""
    seen: list[tuple[bool, bool]] = []

    def innermost() -> None:
        seen.append((threading.current_thread() is threading.main_thread(), torch_profiler_is_on()))
        if len(seen) == 1:
            capture(Graph())

    pyprof.init(sink="nvtx")
    assert torch_profiler_is_on()
    capture(Graph())
    for _ in range(2):
        backward(65, innermost)
        assert torch_profiler_is_on()
    assert seen == [(False, False), (False, True)]  # only in the first are PyTorch's own ranges off
    pyprof.start()
    record = told(domain)
    assert record is not None and len(record.captures) == 2
    assert any(record.texts[each[3]].startswith("aten::gelu") for each in record.captures[1])
    pyprof.stop()


@pytest.mark.usefixtures("own_ranges")
def test_a_capture_on_autograd_s_thread_that_cannot_be_recorded_is_said(
    domain: Domain, capfd: pytest.CaptureFixture[str]
) -> None:
    pyprof.init(sink="nvtx")
    backward(65, lambda: capture(Graph()))
    pyprof.start()
    assert told(domain) is None
    assert "is not recorded, and its kernels will have no op: another thread began it" in capfd.readouterr().err
    pyprof.stop()


def test_texts_of_other_programs_are_no_pieces() -> None:
    for text in ("pyprof.captured:", "pyprof.captured:1/x:abc", "pyprof.captured", "captured:0/1:abc", CLOCK_RANGE):
        assert piece_in(text, CAPTURED_RANGE) is None and clock_ns(text) is None
    found = Piece(0, 1, "no base64!"), Piece(0, 2, "")
    assert [unpacked([one]) for one in found] == [None, None]
    assert unpacked([]) is None


def test_the_ranges_of_compiled_code_hold_its_record(domain: Domain) -> None:
    pyprof.init(sink="nvtx")
    active = session.current()
    assert active is not None
    with active.compiled.range("12.1", "{}"):
        assert domain.open == ["pyprof.compiled:12.1:0/1:{}"]
    assert domain.open == []
