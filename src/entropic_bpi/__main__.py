"""``python -m entropic_bpi`` is the same as ``entropic-bpi``."""

from entropic_bpi.cli import main

if __name__ == "__main__":
    main()
