"""All rules that propose edits; importing this module registers them."""

from pyprof.prof.edits import (  # noqa: F401
    attention,
    cell_loops,
    float8,
    from_findings,
    graphs,
    growing_tensors,
    host_waits,
    loops,
    mask_loops,
    reduced_precision,
    sample_loops,
    whole_model,
)
from pyprof.prof.edits.edit import EDIT_RULES

__all__ = ["EDIT_RULES"]
