"""Where transitions come from."""
