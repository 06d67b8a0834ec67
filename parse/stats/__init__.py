"""The tables of ``nsys stats``, for every format that PyProf reads.

These tables sum up a profiler's own events (API calls that launched nothing, operating-system calls, start/end ranges),
most of which never reach the kernel table. So they belong to the stage that reads files, beside the readers, and not to
``prof/``, which sees the kernel table alone. Nothing here depends on ops or FLOPs.

    recording.py         a file's events as columns, read when a report asks for them
    open_recording.py    opens a file; from_nsys.py, from_nvprof.py, from_kineto.py, and from_capture.py for the rest
    grouped.py           count, total, mean, median, extremes and deviation of groups; rounding
    enclosing_ranges.py  which ranges contain which launches
    reports.py           the list of reports; calls.py, kernels.py, memory.py, launches.py, nvtx_times.py,
                         nvtx_kernels.py and projection.py compute them
    layout.py            the column, csv and json forms; cli.py: the command

NVIDIA's report scripts are proprietary: these tables follow NVIDIA's documentation and the output of the reports.
"""
