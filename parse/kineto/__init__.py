"""Read the JSON traces of torch.profiler (Kineto) into a Capture."""
