"""Bounds on the number of episodes; the public names are those of :mod:`entropic_bpi.theory`."""
