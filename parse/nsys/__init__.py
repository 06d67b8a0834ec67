"""Read Nsight Systems databases (``nsys export --type sqlite``) into a Capture."""
