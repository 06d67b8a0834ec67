"""The code that all commands share: how they run, their common options, their JSON and their errors."""
