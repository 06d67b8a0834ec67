"""The one list of changes: what to change in a program, in order, and what each brings; every output shows it."""
