"""Read what Nsight Compute measured: launches, their metrics in base units, and quantities by any generation's names.

    from pyprof.parse.ncu.reader import read                   # Path -> Report: CSV (raw, details; .gz) and .ncu-rep
    from pyprof.parse.ncu.quantities import QUANTITIES, quantity, tensor_ops, tensor_ops_by_precision, executed_flops
    from pyprof.parse.ncu.stalls import stall_shares

    report = read(Path("report.csv"))                          # InputError: one line, if it is not ncu's, cut or empty
    report.launches[0].name, .names, .grid, .block, .ranges    # a Launch; unknown is None, "" or ()
    report.metric("dram__bytes_read.sum")                      # float64 per launch, NaN if unknown; None: in no launch
    report.units["dram__bytes_read.sum"]                       # "byte": always a base unit
    quantity(report, "dram_read_bytes")                        # the first of its sources, NaN if there is none

A table or report of ncu is no capture: it has no timeline, so ``pyprof parse`` refuses it.
"""
