"""The kernel table: its columns in memory, and the files that hold it."""
