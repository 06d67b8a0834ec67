"""Inductor's debug folder: the source of compiled graphs as records of what their calls compute."""
