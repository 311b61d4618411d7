"""Write docs/errors.md from the table of codes in `flotilla.serving.errors`.

Usage: error_docs.py [--check]     (with --check, nothing is written: code 1 tells that the file is not current)
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from flotilla.net.codes import CODES
from flotilla.serving.errors import RETRYABLE

PATH = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

_HEAD = """\
# Codes of refusals

Made from `client/src/flotilla/serving/errors.py` by `tools/error_docs.py`: change the table there.

Every server refuses in one shape: `{"code", "message", "details", "retryable"}`. The code is for programs and means the
same wherever it comes from; the message is for people and may change. After a refusal nothing was changed, but for
`internal` and `unknown_outcome`, and for what `details` name as `done`. Where trying again makes sense later, a header
`Retry-After` says when. The calls for people have the same statuses with the message alone, and 400 where it says 409.

| code | status | retryable | what it means, and what to do |
|---|---|---|---|
"""


def write_docs() -> str:
    """Write the page: the codes by status, then by name."""
    rows = sorted((known.status, code, known.meaning) for code, known in CODES.items())
    lines = (
        f"| `{code}` | {status} | {'yes' if code in RETRYABLE else 'no'} | {meaning} |\n"
        for status, code, meaning in rows
    )
    return _HEAD + "".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Write the page, or tell whether it is current."""
    if list(arguments) not in ([], ["--check"]):
        print("usage: error_docs.py [--check]", file=sys.stderr)
        return 2
    text = write_docs()
    if not arguments:
        PATH.write_text(text, encoding="utf-8")
    elif not PATH.exists() or PATH.read_text(encoding="utf-8") != text:
        print(f"{PATH.name} is not current; run tools/error_docs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
