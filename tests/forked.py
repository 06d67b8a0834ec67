"""A forked child of the test's process that ends whatever happens in it."""

import os
import traceback
from collections.abc import Callable


def forked(run: Callable[[], object]) -> int:
    """Call ``run`` in a forked child. Returns the child's exit code: 0 if the result is true, 1 if not or if it raises.

    An exception must not leave the child's call: a second pytest would go on in it, and the first would wait for ever.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if run() else 1
        except Exception:  # noqa: BLE001 -- it is told, and the exit code says that something was wrong
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
