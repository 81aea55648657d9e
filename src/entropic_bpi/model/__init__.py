"""Known models: their arrays and files, exact planning, instances."""
