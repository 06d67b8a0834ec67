"""The work of helper kernels, which their op's model does not describe."""
