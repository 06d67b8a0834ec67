"""``pyprof mcp``: the commands' JSON answers as tools of a server of the Model Context Protocol, for coding agents."""
