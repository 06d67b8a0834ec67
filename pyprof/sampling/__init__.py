"""``pyprof.profile(every=N, to=...)``: one iteration in N is recorded, and its numbers go to where a run is watched."""
