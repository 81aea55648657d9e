"""Everything that knows probabilities: models, their files, exact planning, instances."""
