"""Where the time went: steps, idle time and its causes, waiting, collectives, use of the GPU."""
