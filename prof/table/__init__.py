"""The table that prof.py prints: columns, cells, conditions, groups, and the formats that it is written in."""
