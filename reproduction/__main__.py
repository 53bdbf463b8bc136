"""`python -m reproduction` is the command line."""

import sys

from .cli import main

if __name__ == "__main__":  # processes that are spawned import this file, too
    sys.exit(main())
