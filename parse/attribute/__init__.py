"""From a capture to the kernel table: which op, layer, line, direction, phase and step launched each row."""
