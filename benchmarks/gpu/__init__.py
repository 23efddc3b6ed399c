"""GPU checks and measurements in one command; see `__main__`."""
