"""torch.profiler (Kineto): its JSON trace to a Capture."""
