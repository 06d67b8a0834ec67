"""CUDA graphs: the launches that a graph captured, and the kernels of its replays, joined."""
