"""The bounds of each method, computed again."""
