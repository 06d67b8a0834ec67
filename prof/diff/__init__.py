"""Two captures of a program, compared: what got faster or slower, and where."""
