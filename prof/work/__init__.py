"""The algorithm's work: FLOPs and bytes of each row, from its op's model and arguments."""
