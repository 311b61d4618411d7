"""Values of the connection options, as given on the command line."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ConnectionFlags:
    """The connection options; None for those that are not given."""

    context: str | None = None
    url: str | None = None
    ca: Path | None = None
    token_file: Path | None = None
    secret_file: Path | None = None
