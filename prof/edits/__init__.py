"""Changes to the program as edits of its run: which kernels, launches and waits change, and the run after them."""
