"""Processes that prepare side by side and then use the GPU in turns, a part of their work each.

A machine's host may be slower by a third for seconds on end. So what is to be compared runs as near in time as it can:
each process is forked from one that has imported torch, makes its model, and calls `wait()`; it goes on when it is
given its turn, until it calls `wait()` again or ends. Nothing else runs meanwhile, as all others wait, too.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

mine: list[Connection] = []  # of this process, if it takes turns


def wait() -> None:
    """Of a process that takes turns: done for now. Returns when it is its turn again."""
    if not mine:
        return
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    mine[0].send("waits")
    mine[0].recv()


class InTurn:
    """A process that calls ``work(*args)`` and takes turns; its output goes to the file ``shown``."""

    def __init__(self, shown: str, work: Callable[..., Any], *args: Any) -> None:
        forks = multiprocessing.get_context("fork")
        self._here, there = forks.Pipe()
        self._process = forks.Process(target=_run, args=(there, shown, work, args))
        self._process.start()
        there.close()

    def waits(self, until: float) -> bool:
        """Wait until it waits for its turn; False if it has ended, or did not until this ``time.monotonic()``."""
        while time.monotonic() < until:
            if self._here.poll(0.05):
                try:
                    self._here.recv()
                except EOFError:
                    return False
                return True
            if not self._process.is_alive() and not self._here.poll():
                return False
        return False

    def turn(self, until: float) -> bool:
        """Its turn, until it waits again (True) or has ended."""
        try:
            self._here.send("go")
        except OSError:
            return False
        return self.waits(until)

    def end(self, until: float) -> int:
        """Its exit code; it is killed if it has not ended by then."""
        self._process.join(max(until - time.monotonic(), 0))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        return self._process.exitcode or 0


def _run(there: Connection, shown: str, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
    out = os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    mine[:] = [there]
    try:
        code = work(*args)
    except SystemExit as ended:
        code = ended.code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else 0)  # loaders' workers and profilers shall not hold anybody up
