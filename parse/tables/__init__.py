"""A capture as tables: of kernels, of the host's calls, of allocations."""
