"""A run as a trace for Perfetto: ``collect`` makes tracks and slices, ``write_proto`` and ``write_json`` the file."""
