"""Plots, reports and the words for results."""
