"""`flotilla up` with other servers: UP_BROKER and UP_MANAGER name their modules, UP_FORK=0 starts each anew."""

import os
import sys

from flotilla.command import main
from flotilla.up.plan import Programs

if __name__ == "__main__":
    default = Programs()
    broker, manager = os.environ.get("UP_BROKER", default.broker), os.environ.get("UP_MANAGER", default.manager)
    fork = os.environ.get("UP_FORK", "1") == "1"
    sys.exit(main(["up", *sys.argv[1:]], Programs(broker, manager, fork)))
