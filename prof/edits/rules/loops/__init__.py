"""Rules about Python loops: over parameters, masks, samples, and the time steps of a sequence."""
