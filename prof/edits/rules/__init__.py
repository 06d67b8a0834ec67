"""All rules that propose edits; importing this module registers them."""

from pyprof.prof.edits.edit import EDIT_RULES
from pyprof.prof.edits.rules import (  # noqa: F401
    attention,
    float8,
    from_findings,
    graphs,
    growing_tensors,
    host_waits,
    inference_mode,
    kept_activations,
    kept_tables,
    memory_format,
    micro_batches,
    part_graphs,
    reduced_precision,
    sibling_layers,
    unused_gradients,
    whole_model,
)
from pyprof.prof.edits.rules.loops import (  # noqa: F401
    cell_loops,
    mask_loops,
    parameter_loops,
)

REMOVED = (  # in 2.0: pyprof plan takes their names for one version, with a line that says so
    "ensemble",
    "gathered_product",
    "index_gradient",
    "joined_calls",
    "loop_inputs",
    "loop_of_products",
    "parallel_modules",
    "parameter_groups",
    "sample_loop",
)

__all__ = ["EDIT_RULES", "REMOVED"]
