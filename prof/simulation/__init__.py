"""The replay of a capture, shown: the difference from the capture, the critical path, the simulated timeline."""
