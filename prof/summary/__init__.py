"""The one summary of a capture: its numbers and sentences, and how a terminal shows them."""
