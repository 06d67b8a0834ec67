"""Information from a kernel's name: its family, tensor cores, role and operand dtypes."""
