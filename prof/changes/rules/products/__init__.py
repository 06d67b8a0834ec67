"""Matrix products and convolutions: their precision, sizes and padding."""
