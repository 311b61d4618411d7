"""The Java of this machine, which Spark needs."""

import os
import re
import shutil
import subprocess
from pathlib import Path

VERSION_MIN = 17
REASON = (
    f"Spark needs Java {VERSION_MIN} or newer; on Debian, as root: apt-get install openjdk-{VERSION_MIN}-jre-headless"
)


def is_usable() -> bool:
    """Return whether Spark can run here."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else str(Path(home, "bin", "java"))
    if java is None or not Path(java).exists():
        return False
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', printed)
    return found is not None and int(found[1]) >= VERSION_MIN
