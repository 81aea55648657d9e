"""Research tools: learners, comparisons, events, experiments. The core never imports them."""
