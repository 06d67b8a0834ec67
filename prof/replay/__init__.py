"""The run as tasks with dependencies, simulated from its own calls and kernels, and the command that shows it."""
