"""Only the FLOPs, in one line each: of the op, and of the Triton kernel where it runs without an op.

pyprof prof --group op --models one_line.py plugin.json.gz
"""

import pyprof

pyprof.flops("scaled_add::scaled_add", lambda a, b, scale: 2 * a.numel)
pyprof.flops("scaled_add_kernel", lambda a, b, out, scale, count: 2 * count)
