"""Parts that all commands share: the application, options, sources, and how an answer is shown."""
