"""File formats of models."""
