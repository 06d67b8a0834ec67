"""What a change makes of a run: which kernels, launches and waits change, and the step's time after them."""
