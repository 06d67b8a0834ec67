"""Kernels that share the correlation id of one HIP call that launches one kernel: at most one of them is its kernel.

roctracer and rocprofiler may give the id of a launch to kernels of other launches, too. Calls that may run several
kernels by themselves share their id rightly: replays of graphs, launches on several devices, copies and memsets.
"""

import re

import numpy as np

from pyprof.table.columns import Bools, Coded, Ints

_ONE_KERNEL = re.compile(r"hip(?:Ext|Hcc|Module)*Launch(?:Cooperative)?Kernel(?:ExC)?(?:_spt)?$|hipLaunchByPtr$")


def shared_launches(call: Ints, kernels: Bools, calls: Coded, named: Bools | None = None) -> Bools:
    """Which rows share their call with other kernels, of which it launched only one, and may not be that one.

    ``call``: of each row, -1: none; ``kernels``: which rows are kernels; ``calls``: the names of all calls;
    ``named``: which rows have the name of the kernel that their call says that it launched, where calls say so. The
    only row of a call that has it is the call's.
    """
    single = np.append(calls.where(lambda name: _ONE_KERNEL.match(name) is not None), False)
    rows = np.flatnonzero(kernels & single[call])
    count = np.bincount(call[rows], minlength=len(single))
    found = np.zeros(len(call), bool)
    found[rows] = count[call[rows]] > 1
    if named is not None:
        own = rows[named[rows]]
        agreeing = np.bincount(call[own], minlength=len(single))
        found[own] &= agreeing[call[own]] > 1
    return found
