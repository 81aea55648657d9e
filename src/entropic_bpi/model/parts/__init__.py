"""The parts of a model: arrays, masks, noise and names, as they are given and as they are kept."""
