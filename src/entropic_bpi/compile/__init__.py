"""How kernels are compiled: decorators, linking, GPU."""
