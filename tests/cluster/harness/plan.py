"""What a node is told when it is started: a file, because it starts in another process."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plan:
    """A node."""

    folder: str  # everything that it writes is below
    listening: dict[str, int]  # sockets on this machine's loopback, by the node's port that they lead to
    pki: str
    cgroup: str
    pause: str
    archives: list[str]  # images, to be there before the first pod
    programs: dict[str, str]

    @classmethod
    def from_file(cls, file: Path) -> "Plan":
        """Read it."""
        return cls(**json.loads(file.read_text()))

    def write(self, file: Path) -> None:
        """Write it."""
        file.write_text(json.dumps(asdict(self)))
