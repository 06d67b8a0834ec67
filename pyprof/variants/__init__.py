"""pyprof try: a script run once as it is and once per change that is applied from outside, each run timed."""
