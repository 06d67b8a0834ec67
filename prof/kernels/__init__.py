"""What a kernel's name says: its family, tensor cores, role and operand dtypes."""
