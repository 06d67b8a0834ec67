"""Turn a capture into the kernel table: find the op, layer, line, direction, phase and step of each row."""
