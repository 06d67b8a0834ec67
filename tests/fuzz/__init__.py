"""The fuzzer: whole files of every format, damaged by chance but repeatably, under every command that reads them.

    python -m tests.fuzz --cases 100000 --seed 1 --folder build/fuzz

A case is a number. Seed and number decide everything about it, so ``python -m tests.fuzz --seed 1 --only 4711`` repeats
one case, and prints what the command printed. ``campaigns.json`` has what was run before a release, and with what result.
"""
