"""All rules that propose edits; importing this module registers them."""

from pyprof.prof.edits.edit import EDIT_RULES
from pyprof.prof.edits.rules import (  # noqa: F401
    attention,
    cell_loops,
    float8,
    from_findings,
    graphs,
    growing_tensors,
    host_waits,
    index_gradients,
    inference_mode,
    kept_activations,
    kept_tables,
    loop_of_products,
    loops,
    mask_loops,
    memory_format,
    parameter_groups,
    part_graphs,
    reduced_precision,
    sample_loops,
    sibling_layers,
    whole_model,
)

__all__ = ["EDIT_RULES"]
