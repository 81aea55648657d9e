"""Showing results: plots, reports."""
