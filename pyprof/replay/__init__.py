"""Rows of a kernel table, made into calls that can run again: ops with new inputs of the recorded shapes. Needs torch."""
