"""The problem as a learner sees it, its declarations, and the counts of what was observed."""
