"""All rules: importing this module registers them.

A rule is a small pure function. One of ``RULES`` finds kernels, and the GPU's work that a change removes (``Finding``);
one of ``EDIT_RULES`` says what a change makes of the run, its launches and waits (``Edit``). A rule that lacks data
abstains.
"""

from pyprof.prof.changes.effect.edit import EDIT_RULES
from pyprof.prof.changes.effect.finding import CPU_RULES, RULES
from pyprof.prof.changes.rules import cpu_ops, from_findings  # noqa: F401
from pyprof.prof.changes.rules.host import (  # noqa: F401
    communication,
    copies,
    data_loader,
    graphs,
    growing_tensors,
    host_waits,
    inference,
    kept_activations,
    part_graphs,
)
from pyprof.prof.changes.rules.kernels import (  # noqa: F401
    attention,
    attention_rewritten,
    fusion,
    gradients,
    layout,
    loss,
    memory_format,
    optimizer,
    unused_gradients,
    whole_model,
)
from pyprof.prof.changes.rules.products import (  # noqa: F401
    alignment,
    float8,
    reduced_precision,
)
from pyprof.prof.changes.rules.repeats import (  # noqa: F401
    cell_loops,
    mask_loops,
    parameter_loops,
    repeats_as_one,
    sibling_layers,
)

REMOVED = (  # in 2.0: pyprof plan takes their names for one version, with a line that says so
    "dropout_in_eval",
    "ensemble",
    "gathered_product",
    "group_norm",
    "index_gradient",
    "joined_calls",
    "loop_inputs",
    "loop_of_products",
    "made_again",
    "parallel_modules",
    "parameter_groups",
    "sample_loop",
    "small_collectives",
    "small_grid",
)

__all__ = ["CPU_RULES", "EDIT_RULES", "REMOVED", "RULES"]
