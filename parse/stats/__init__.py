"""The tables of ``nsys stats``, for every format that pyprof reads.

The place: these tables sum up a profiler's own events (API calls that launched nothing, operating-system calls,
start/end ranges), most of which never reach the kernel table. So they belong to the stage that reads files, beside
the readers, and ``prof/``, which knows the kernel table alone, stays free of them. Nothing here knows an op or a FLOP.

    recording.py   what a file holds, as columns, read when a report asks for it
    opened.py      a file as a recording; from_nsys.py, from_nvprof.py, from_kineto.py, and from_capture.py for the rest
    grouped.py     count, total, mean, median, extremes and deviation of groups; rounding
    holding.py     which ranges hold which launches
    reports.py     the table of reports; calls.py, kernels.py, memory.py, launches.py, nvtx_times.py, nvtx_kernels.py
                   and projection.py compute them
    layout.py      column, csv and json forms; cli.py: the command

NVIDIA's report scripts are proprietary: these follow NVIDIA's documentation and what the reports print.
"""
