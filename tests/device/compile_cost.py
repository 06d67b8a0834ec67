"""What recording adds to the time that a program takes to compile: of GPT-2 and a Llama block with their losses.

    python tests/device/compile_cost.py [--pairs N] [--only NAME ...]

Each measurement is a process of its own with empty caches: its first step, with pyprof and without, in turn. The
processes with pyprof also say how much of that time its hooks took. CPU seconds, those of the compiler's processes
included, vary less than the clock's on a machine that others use. The last line of a program has the medians.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("gpt2_whole", "llama_whole")


def measure(name: str, with_pyprof: bool) -> tuple[float, float, float]:
    """Seconds of the first step, its CPU seconds, and those of pyprof's hooks in it. In this process."""
    import compiled_layers
    import torch

    spent = [0.0]
    if with_pyprof:
        import pyprof

        _time_hooks(spent)
        pyprof.init()
    step = getattr(compiled_layers, name)(torch.compile)
    began, busy = time.perf_counter(), sum(os.times()[:4])
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began, sum(os.times()[:4]) - busy, spent[0]


def _time_hooks(spent: list[float]) -> None:
    """Whatever a hook does for the record is done within ``_careful``."""
    from pyprof.provenance.inductor_hooks import _Hooks

    careful = _Hooks._careful

    @contextmanager
    def _careful(hooks: Any) -> Iterator[None]:
        began = time.perf_counter()
        with careful(hooks):
            yield
        spent[0] += time.perf_counter() - began

    _Hooks._careful = _careful  # type: ignore[method-assign]


def in_a_process(name: str, with_pyprof: bool) -> tuple[float, ...]:
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--one", name, *(["--pyprof"] if with_pyprof else [])]
        run = subprocess.run(
            command, env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache}, capture_output=True, text=True, check=True
        )
    return tuple(map(float, run.stdout.split()[-3:]))


def _described(pair: tuple[float, ...]) -> str:
    return "without {:.2f} s (CPU {:.2f} s), with pyprof {:.2f} s (CPU {:.2f} s), of it in hooks {:.3f} s".format(*pair)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=PROGRAMS, choices=PROGRAMS)
    parser.add_argument("--one", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--pyprof", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        sys.stdout.write("{} {} {}\n".format(*measure(options.one, options.pyprof)))
        return 0
    sys.path.insert(0, str(Path(__file__).parent))
    for name in options.only:
        pairs = []
        for _ in range(options.pairs):
            (clock, busy, _), (recorded, worked, hooks) = in_a_process(name, False), in_a_process(name, True)
            pairs.append((clock, busy, recorded, worked, hooks))
            sys.stdout.write(f"{name}: {_described(pairs[-1])}\n")
            sys.stdout.flush()
        middle = tuple(statistics.median(column) for column in zip(*pairs, strict=True))
        sys.stdout.write(f"{name}, medians: {_described(middle)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
