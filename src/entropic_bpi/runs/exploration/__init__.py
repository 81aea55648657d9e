"""One set of data for many rewards: claims for another reward, and exploration before any reward is known."""
