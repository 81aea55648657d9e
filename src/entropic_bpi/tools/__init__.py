"""Tools without a word of the domain: checks of arguments, texts, files, interrupts."""
