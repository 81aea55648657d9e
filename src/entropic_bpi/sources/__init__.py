"""Where transitions come from: a simulated model, an environment that is played, or a log."""
