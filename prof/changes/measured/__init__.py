"""Measured durations for edits: which calls an edit replaces by which others, and the file that holds their times."""
