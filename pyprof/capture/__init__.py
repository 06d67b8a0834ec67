"""The part of pyprof that runs inside the user's program: markers around PyTorch calls, and the embedded collector.

Needs torch. It does not change what the program computes or raises, and ``pyprof.deinit()`` restores everything that
``pyprof.init()`` replaced. docs/explanation/marking.md has the measured costs.
"""
