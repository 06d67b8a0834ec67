"""The labels of ncu's details page -> the metrics that they show.

A label may stand in several sections, and one label means different metrics by unit: "Memory Throughput" is a share of
the peak or bytes per second. Source: the ``.section`` files of Nsight Compute 2019.5, 2021.3, 2023.1 and 2025.3.
"""

LABELS = {
    # (label, base unit): metric
    ("Duration", "ns"): "gpu__time_duration.sum",
    ("Elapsed Cycles", "cycle"): "gpc__cycles_elapsed.max",
    ("SM Active Cycles", "cycle"): "sm__cycles_active.avg",
    ("SM Frequency", "hz"): "gpc__cycles_elapsed.avg.per_second",
    ("DRAM Frequency", "hz"): "dram__cycles_elapsed.avg.per_second",
    ("Compute (SM) Throughput", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("Compute (SM) [%]", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("SOL SM", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("SM [%]", "%"): "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ("Memory Throughput", "%"): "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ("Memory [%]", "%"): "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ("SOL Memory", "%"): "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
    ("DRAM Throughput", "%"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ("SOL DRAM", "%"): "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ("L2 Cache Throughput", "%"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ("SOL L2 Cache", "%"): "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    ("L1/TEX Cache Throughput", "%"): "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ("SOL L1/TEX Cache", "%"): "l1tex__throughput.avg.pct_of_peak_sustained_active",
    ("Memory Throughput", "byte/s"): "dram__bytes.sum.per_second",
    ("L1/TEX Hit Rate", "%"): "l1tex__t_sector_hit_rate.pct",
    ("L2 Hit Rate", "%"): "lts__t_sector_hit_rate.pct",
    ("Executed Instructions", "inst"): "smsp__inst_executed.sum",
    ("Issued Instructions", "inst"): "smsp__inst_issued.sum",
    ("Executed Ipc Active", "inst/cycle"): "sm__inst_executed.avg.per_cycle_active",
    ("Executed Ipc Elapsed", "inst/cycle"): "sm__inst_executed.avg.per_cycle_elapsed",
    ("Block Size", ""): "launch__block_size",
    ("Grid Size", ""): "launch__grid_size",
    ("# SMs", "SM"): "launch__sm_count",
    ("Threads", "thread"): "launch__thread_count",
    ("Waves Per SM", ""): "launch__waves_per_multiprocessor",
    ("Registers Per Thread", "register/thread"): "launch__registers_per_thread",
    ("Static Shared Memory Per Block", "byte/block"): "launch__shared_mem_per_block_static",
    ("Dynamic Shared Memory Per Block", "byte/block"): "launch__shared_mem_per_block_dynamic",
    ("Driver Shared Memory Per Block", "byte/block"): "launch__shared_mem_per_block_driver",
    ("Theoretical Occupancy", "%"): "sm__maximum_warps_per_active_cycle_pct",
    ("Theoretical Active Warps per SM", "warp"): "sm__maximum_warps_avg_per_active_cycle",
    ("Achieved Occupancy", "%"): "sm__warps_active.avg.pct_of_peak_sustained_active",
    ("Achieved Active Warps Per SM", "warp"): "sm__warps_active.avg.per_cycle_active",
}
