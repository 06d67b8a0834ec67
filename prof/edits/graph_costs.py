"""What launches in a CUDA graph cost, against launches one by one."""

MANY = 30  # fewer launches per step do not limit a step
# In a CUDA graph: small kernels take a tenth longer than launched one by one, and follow each other after 0.25 µs
# (three programs of 80 to 1,100 kernels on an H200).
IN_GRAPH, AFTER_NS = 1.1, 250.0
