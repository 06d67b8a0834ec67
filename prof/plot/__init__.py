"""Figures for papers, slides and notebooks: one file per figure.

Each file has two functions. ``numbers(...)`` is pure and returns the numbers that the figure shows, as a frozen record
for tests and ``--json``. ``draw(numbers, look)`` turns them into a matplotlib figure and decides only the layout.
matplotlib is imported only when something is drawn.
"""
