"""What the host does: launches, waits, input data, and what one call can keep for the next."""
