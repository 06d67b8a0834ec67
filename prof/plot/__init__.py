"""Pictures for papers, slides and notebooks: a file a figure.

Each has two halves. ``numbers(...)`` is pure and makes of a capture what the figure shows, as a frozen record: tests,
``--json`` and readers look at that. ``draw(numbers, look)`` makes of it a matplotlib figure and decides nothing but
places. matplotlib is imported when something is drawn.
"""
