"""Rows of a kernel table, made into calls that can run again, on new inputs of the recorded form. Needs torch."""
