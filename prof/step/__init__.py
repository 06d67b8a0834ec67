"""The step as the user runs it: how long it takes, and what limits it. Every output takes these from here."""
