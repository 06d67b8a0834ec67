"""What calls take in another precision or memory format, by measured calls of similar sizes."""
