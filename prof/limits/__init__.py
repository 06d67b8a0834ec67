"""The hardware's limits: devices and their peaks, the roofline, occupancy."""
