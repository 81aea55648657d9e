"""What no algorithm can beat on one given model; the public names are those of :mod:`entropic_bpi.theory`."""
