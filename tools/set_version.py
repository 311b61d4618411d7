"""Set the version of Flotilla: in the one place that defines it, and in every file that needs a literal copy.

Usage: set_version.py X.Y.Z     set the version everywhere
       set_version.py --check   list the copies that differ from the definition; exit with 1 if there are any

`__version__` of `flotilla` is the definition. The members of the workspace read it when they are built, and so does the
Makefile. Copies are in the Helm chart, and in the image tags of the documentation.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFINITION = Path("client/src/flotilla/__init__.py")
_NUMBER = r"\d+\.\d+\.\d+"
_VERSION = re.compile(_NUMBER)
_DEFINED = re.compile(rf'(?m)^__version__ = "(?P<version>{_NUMBER})"$')
_CHART = re.compile(rf'(?m)^(?:version|appVersion): "?(?P<version>{_NUMBER})"?$')
_IMAGE_TAG = re.compile(rf"\b(?:flotilla:|flotilla-spark:|image\.tag=)(?P<version>{_NUMBER})\b")
# A pattern of file names, and where in these files the version is. Decision records keep the version they were made at.
_COPIES = (
    ("helm/flotilla/Chart.yaml", _CHART),
    ("README.md", _IMAGE_TAG),
    ("docs/*.md", _IMAGE_TAG),
    ("spark-apps/*.md", _IMAGE_TAG),
)


@dataclass(frozen=True)
class Copy:
    """A literal version in a file."""

    path: Path
    line: int
    version: str


def read_version(root: Path = ROOT) -> str:
    """Read the version from its definition."""
    found = _DEFINED.search((root / DEFINITION).read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f'{DEFINITION}: no line `__version__ = "X.Y.Z"`')
    return found["version"]


def find_copies(root: Path = ROOT) -> Iterator[Copy]:
    """Find every copy of the version."""
    for path, pattern in _files(root):
        text = path.read_text(encoding="utf-8")
        for match in pattern.finditer(text):
            yield Copy(path.relative_to(root), text.count("\n", 0, match.start()) + 1, match["version"])


def set_version(version: str, root: Path = ROOT) -> list[Path]:
    """Write the version into its definition and all copies; return the files that changed."""
    changed = []
    for path, pattern in ((root / DEFINITION, _DEFINED), *_files(root)):
        old = path.read_text(encoding="utf-8")
        new = pattern.sub(lambda match: _replace(match, version), old)
        if new != old:
            path.write_text(new, encoding="utf-8")
            changed.append(path.relative_to(root))
    return changed


def _files(root: Path) -> Iterator[tuple[Path, re.Pattern[str]]]:
    for name, pattern in _COPIES:
        for path in sorted(root.glob(name)):
            yield path, pattern


def _replace(match: re.Match[str], version: str) -> str:
    start, end = match.span("version")
    return match.string[match.start() : start] + version + match.string[end : match.end()]


def _check() -> int:
    version = read_version()
    different = [copy for copy in find_copies() if copy.version != version]
    for copy in different:
        print(f"{copy.path}:{copy.line}: version is {copy.version}; {DEFINITION} defines {version}", file=sys.stderr)
    if different:
        print(f"run tools/set_version.py {version}", file=sys.stderr)
    return int(bool(different))


def main(arguments: Sequence[str]) -> int:
    """Set the version, or check its copies."""
    if list(arguments) == ["--check"]:
        return _check()
    if len(arguments) != 1 or _VERSION.fullmatch(arguments[0]) is None:
        print("usage: set_version.py X.Y.Z | --check", file=sys.stderr)
        return 2
    for path in set_version(arguments[0]):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
