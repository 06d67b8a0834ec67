"""Work that a step repeats: loops, micro-batches and layers of one kind."""
