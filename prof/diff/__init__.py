"""Compare two captures of a program: what got faster or slower, and where."""
