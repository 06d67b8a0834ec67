"""Captures without a GPU: the CPU ops that do work are the rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.capture import Capture


def host_capture(capture: Capture, is_op: NDArray[np.bool_]) -> None:
    """Fill a capture's rows with its CPU ops."""
