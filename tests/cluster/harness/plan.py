"""Parameters of a node, passed in a file to its process."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """Parameters of a node."""

    folder: str  # root of everything that it writes
    listening: dict[str, int]  # sockets on loopback, by the port of the node that they lead to
    pki: str
    cgroup: str
    pause: str
    archives: list[str]  # images to import before the first pod
    programs: dict[str, str]

    @classmethod
    def from_file(cls, file: Path) -> "Plan":
        """Read the file."""
        return cls(**json.loads(file.read_text()))

    def write(self, file: Path) -> None:
        """Write the file."""
        file.write_text(json.dumps(asdict(self)))
