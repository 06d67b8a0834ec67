"""A forked child of a test, which never returns to pytest, whatever happens in it."""

import os
import traceback
from collections.abc import Callable


def exit_code(run: Callable[[], bool]) -> int:
    """Of a child that runs this: 0 if it returns True, 1 if False, 2 with a traceback if it fails."""
    return os.waitstatus_to_exitcode(os.waitpid(start(run), 0)[1])


def start(run: Callable[[], bool]) -> int:
    """The process id of such a child. The caller waits for it."""
    child = os.fork()
    if child:
        return child
    code = 2
    try:
        code = 0 if run() else 1
    finally:  # also after what pytest raises to skip or to end: the child would go on with the parent's tests
        if code == 2:
            traceback.print_exc()
        os._exit(code)
