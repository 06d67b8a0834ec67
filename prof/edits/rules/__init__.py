"""All rules that propose edits; importing this module registers them."""

from pyprof.prof.edits.edit import EDIT_RULES
from pyprof.prof.edits.rules import (  # noqa: F401
    attention,
    float8,
    from_findings,
    gathered_products,
    graphs,
    growing_tensors,
    host_waits,
    index_gradients,
    inference_mode,
    joined_calls,
    kept_activations,
    kept_tables,
    memory_format,
    parameter_groups,
    part_graphs,
    reduced_precision,
    sibling_layers,
    unused_gradients,
    whole_model,
)
from pyprof.prof.edits.rules.loops import (  # noqa: F401
    cell_loops,
    ensembles,
    loop_of_products,
    mask_loops,
    parameter_loops,
    sample_loops,
)

__all__ = ["EDIT_RULES"]
