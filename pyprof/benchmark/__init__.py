"""Timing on this machine: the rates that its GPU or CPU really reaches. Needs torch."""
