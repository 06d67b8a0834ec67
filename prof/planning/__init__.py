"""pyprof plan: which changes to make, one after the other, and what the step takes after each."""
