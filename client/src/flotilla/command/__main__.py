"""`python -m flotilla.command`: the same as `flotilla`."""

import sys

from flotilla.command.main import main

sys.exit(main())
