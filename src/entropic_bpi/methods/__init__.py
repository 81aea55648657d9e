"""Ways to turn counts into bounds: each has ``plan(counts) -> Plan`` and ``run_every`` for its compiled loop."""
