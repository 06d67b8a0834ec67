"""Measurements of the rates that this machine's GPU or CPU really reaches. Needs torch."""
