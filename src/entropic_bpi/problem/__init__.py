"""What is asked and what was seen: the problem as a learner sees it, and its counts."""
