"""What runs inside the user's program: markers around PyTorch calls, and the embedded collector. Needs torch.

None of it changes what the program computes or raises, and ``pyprof.deinit()`` puts back what ``pyprof.init()``
replaced. docs/explanation/marking.md has the measured costs.
"""
