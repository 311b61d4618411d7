"""`flotilla up`; UP_FORK=0 starts each process without fork, as on systems other than Linux."""

import os
import signal
import sys

from flotilla.command import main
from flotilla.up.plan import Programs

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore it
    sys.exit(main(["up", *sys.argv[1:]], Programs(fork=os.environ.get("UP_FORK", "1") == "1")))
