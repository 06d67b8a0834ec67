"""``pyprof.count``: the FLOPs and bytes of live PyTorch code, counted by the op models of ``prof/ops``. Needs torch."""
