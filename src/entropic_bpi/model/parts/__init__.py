"""Parts of a model: arrays, masks, noise and names, as users pass them and as the model stores them."""
