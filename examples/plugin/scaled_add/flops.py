"""The model of scaled_add::scaled_add: its FLOPs and bytes, from its arguments in the order of its signature."""

import pyprof
from pyprof.prof.ops.model import Work


@pyprof.model("scaled_add::scaled_add", family="pointwise")
def scaled_add(a, b, scale):
    """out = a + scale * b: a product and a sum per element; reads a and b, writes out"""
    return Work(2 * a.numel, a.nbytes + b.nbytes, a.nbytes)
