"""What the command line says about servers, before anything is made of it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The options that every command has which asks servers."""

    context: str | None = None
    url: str | None = None
    ca: Path | None = None
    token_file: Path | None = None
    secret_file: Path | None = None
