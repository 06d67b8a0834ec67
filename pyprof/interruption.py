"""Exceptions that do not come from our own code: what a signal handler raises while a call is being described.

Python runs a signal's handler between two instructions of whatever the main thread does, which may be ours. The
program expects such an exception (a timeout, for example), so it must not be taken for a failed description.
"""

from types import FrameType

_BY_C_CODE = ("builtins", "torch")  # the packages whose exceptions a C function called by us raises


def is_from_outside(error: BaseException) -> bool:
    """Whether a signal handler raised `error`, or another thread did (PyThreadState_SetAsyncExc).

    Python calls a handler with the frame that it interrupted, so the handler's own frame refers to its caller's frame.
    Code that a description calls, such as a property of the user's Tensor class, gets no such argument.
    """
    caller: FrameType | None = None
    frame: FrameType | None = None
    traceback = error.__traceback__
    while traceback is not None:
        caller, frame = frame, traceback.tb_frame
        if caller is not None and _received(frame, caller):
            return True
        traceback = traceback.tb_next
    raised_by_our_code = frame is not None and str(frame.f_globals.get("__name__")).startswith("pyprof.")
    return raised_by_our_code and type(error).__module__.partition(".")[0] not in (*_BY_C_CODE, "pyprof")


def _received(frame: FrameType, caller: FrameType) -> bool:
    """Whether a local variable of `frame`, or an item of its `*args`, is the frame `caller`."""
    for value in frame.f_locals.values():
        if value is caller or (type(value) is tuple and any(item is caller for item in value)):
            return True
    return False
