"""The op models, one file per family: FLOPs and bytes from the shapes of a call. ``families`` imports them all."""
