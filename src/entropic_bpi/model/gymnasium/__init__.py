"""Models of Gymnasium environments that have a table of transitions, and models as Gymnasium environments."""
