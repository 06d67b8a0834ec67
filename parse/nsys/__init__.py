"""Nsight Systems: an ``nsys export --type sqlite`` database to a Capture."""
