"""Sentences about memory: the peak, what is alive then, and what checkpointing would change."""

from collections.abc import Iterator, Sequence

from pyprof.prof.memory.categories import BEFORE, UNKNOWN
from pyprof.prof.memory.memory_numbers import DeviceMemory
from pyprof.prof.memory.peak_content import Share
from pyprof.prof.summary.wording import amount, joined, layer_name, operation_name
from pyprof.quantities import ms, share

MOST = 4  # categories named in a sentence
LITTLE = 0.01  # share of the peak; a category or layer below it is not named
BOUND = 1.25  # the kernels that run again take at least this many times their own time: there is idle time in between


def memory_sentences(devices: Sequence[DeviceMemory]) -> Iterator[str]:
    """The peak of the device that has the most in use, and what it holds then."""
    main = main_device(devices)
    if main is None:
        return
    if main.level == "driver":
        yield (
            f"{_named(main)} memory from cudaMalloc and the like reaches {amount(main.peak_bytes, 'B')}. With PyTorch "
            "it is what the caching allocator reserves; the capture does not have the blocks in use."
        )
        return
    alike = [each for each in devices if (each.kind, each.level) == (main.kind, main.level)]
    yield from _peak(main, several=len(alike) > 1)
    if main.exact:
        yield from _content(main)


def further_sentences(device: DeviceMemory) -> Iterator[str]:
    """What `pyprof memory` says besides."""
    if device.missing:
        yield (
            f"{device.missing:,} of the recorded totals do not follow from the event before: events are missing there, "
            "or their times are out of order. Bytes that no event accounts for count as allocated before the capture."
        )
    if not device.exact and device.level == "allocator":
        yield "The capture does not record the total: amounts count from its first event on."
    layers = [each for each in device.saved if each.name]
    saved = sum(each.nbytes for each in device.saved)
    if layers and saved:
        first = layers[0]
        which = f"the {first.layers} layers {layer_name(first.name)}" if first.layers > 1 else layer_name(first.name)
        hold = "hold" if first.layers > 1 else "holds"
        yield (
            f"The forward pass saves {amount(saved, 'B')} of activations for the backward pass; {which} {hold} "
            f"{amount(first.nbytes, 'B')} of them ({share(first.nbytes, saved)})."
        )
    yield from _checkpointing(device)


def main_device(devices: Sequence[DeviceMemory]) -> DeviceMemory | None:
    """The GPU with the highest peak; without a GPU, the CPU."""
    by_use = sorted(devices, key=lambda each: (not each.is_gpu, each.level != "allocator", -each.peak_bytes))
    return by_use[0] if by_use else None


def _named(device: DeviceMemory) -> str:
    return "GPU" if device.is_gpu else "CPU" if device.kind == "cpu" else device.kind.capitalize()


def _peak(device: DeviceMemory, several: bool) -> Iterator[str]:
    at = device.at
    of = f" of {device.kind} device {device.device}" if several and device.device is not None else ""
    passes = {"forward": "in the forward pass", "backward": "in the backward pass", "optimizer": "in the optimizer"}
    where = passes.get(at.phase, "")
    where += f" of step {at.step}" if where and at.step is not None else ""
    by = f" at {operation_name(at.op)}" if at.op else ""
    by += f" ({at.line})" if by and at.line else ""
    grows = "peaks at" if device.exact else "grows by at most"
    text = f"{_named(device)} memory in use{of} {grows} {amount(device.peak_bytes, 'B')}"
    text += f", {where}{by}" if where else by
    if device.reserved_bytes:
        text += f"; PyTorch's allocator holds up to {amount(device.reserved_bytes, 'B')} in reserve"
    yield f"{text}."


def _content(device: DeviceMemory) -> Iterator[str]:
    named = [each for each in device.content.categories if each.nbytes >= LITTLE * device.peak_bytes]
    known = sorted((each for each in named if each.name not in (BEFORE, UNKNOWN)), key=lambda each: -each.nbytes)
    rest = [each for each in named if each.name in (BEFORE, UNKNOWN)]
    texts = [f"{_size(each, device.peak_bytes)} of {each.name}" for each in known[:MOST]]
    for each in rest:
        what = "from before the capture" if each.name == BEFORE else "of unknown content"
        texts.append(f"{_size(each, device.peak_bytes)} {what}")
    if texts:
        yield f"At the peak it holds {joined(texts)}."


def _size(part: Share, whole: int) -> str:
    return f"{amount(part.nbytes, 'B')} ({share(part.nbytes, whole)})"


def _checkpointing(device: DeviceMemory) -> Iterator[str]:
    if not device.checkpointing or not device.checkpointing[0].freed_bytes:
        return
    best = device.checkpointing[0]
    count = len(best.names)
    which = f"each of the {count} layers {layer_name(best.layers)}" if count > 1 else layer_name(best.layers)
    text = f"Checkpointing {which} would lower the peak from {amount(best.peak_bytes, 'B')} to "
    text += amount(best.new_peak_bytes, "B")
    if best.added is not None and best.cost_ns is not None:
        text += f" and make a step {ms(best.added.ns)} longer ({ms(best.added.low_ns)} to {ms(best.added.high_ns)}); "
        text += f"the kernels that run again take {ms(best.cost_ns)}"
    elif best.cost_ns is not None and best.cost_span_ns is not None:
        step = "that step" if device.at.step is not None else "a step"
        text += f" and repeat {'kernels' if device.is_gpu else 'ops'} of {ms(best.cost_ns)} in {step}"
        if device.is_gpu and best.cost_span_ns > BOUND * best.cost_ns:
            text += f" ({ms(best.cost_span_ns)} with the idle time between them, where the CPU is the limit)"
    yield f"{text}."
