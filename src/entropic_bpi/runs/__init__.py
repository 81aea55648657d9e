"""Runs: the loop, identify, certify, checkpoints, forecasts, data needs."""
