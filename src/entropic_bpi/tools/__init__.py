"""General tools, independent of MDPs: checks of arguments, texts, files, interrupts."""
