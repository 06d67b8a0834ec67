"""The tables of ``nsys stats``, for every format that pyprof reads.

These tables summarize a profiler's own events (API calls that launched nothing, operating-system calls, start/end
ranges), most of which are not in the kernel table. So they belong to the stage that reads files, and not to ``prof/``,
which has only the kernel table. Nothing here depends on ops or FLOPs.

    recording.py         opens a file; its events as columns, read when a report asks for them (nsys and nvprof:
                         from_databases.py; from_kineto.py; from_capture.py for all other formats)
    group_statistics.py  count, total, mean, median, extremes and deviation of groups; rounding
    reports.py           the list of reports, which cuda_sums.py and nvtx_sums.py compute
    layout.py            the column, csv and json forms; cli.py: the command

NVIDIA's report scripts are proprietary: these tables follow NVIDIA's documentation and the output of the reports.
"""
