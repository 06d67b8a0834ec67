"""The run as tasks with dependencies, simulated from its own calls and kernels: how long it takes, and on which path."""
