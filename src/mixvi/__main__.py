"""`python -m mixvi` is the command `mixvi`."""

import sys

from mixvi_cli import main

sys.exit(main())
