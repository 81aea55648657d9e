"""The claim of a run, its file, and the policy that it is about."""
