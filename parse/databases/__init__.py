"""SQLite databases, and folders of Parquet files read as such: the same for every profiler that writes one."""
