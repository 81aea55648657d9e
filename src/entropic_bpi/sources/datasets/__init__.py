"""Data of other libraries as columns of a log."""
