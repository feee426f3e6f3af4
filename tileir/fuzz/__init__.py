"""Random kernels through every execution, with a reducer: `python -m tileir.fuzz --help`."""
