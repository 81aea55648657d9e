"""The sources of transitions: a simulated model, an environment that is played, or a log."""
