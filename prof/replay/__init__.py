"""The step as tasks with dependencies, simulated: what the capture's own calls and kernels say that it must take."""
