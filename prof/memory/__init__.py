"""Memory over time: what is in use and in reserve, what is alive at the peak, and what checkpointing would change."""
