"""The KL method."""
