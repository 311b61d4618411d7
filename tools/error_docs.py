"""Generate docs/errors.md from the error codes in `flotilla.net.codes`.

Usage: error_docs.py [--check]     (--check: write nothing, exit with 1 if the file is outdated)
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from flotilla.net.codes import CODES
from flotilla.protocol.errors import RETRYABLE

PATH = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

_HEAD = """\
# Error codes

Look up the error codes of the [v1 API](api.md) and of [brokers](broker.md) here. `tools/error_docs.py` generates this
page from `client/src/flotilla/net/codes.py`.

An error response is `{"code", "message", "details", "retryable"}`. In programs, check the code: it has the same meaning
on every server, while messages may change. A failed request has changed nothing, with these exceptions. After
`internal`, `unknown_outcome` or any error with `"in_doubt": true` in `details` (the connection to the writer or the
database broke during the request), it may have taken effect. If `details` has `done`, it took effect in those
partitions. The header `Retry-After` of a 429 or 503 gives the seconds to wait before a retry.

`retryable` means that the same request may succeed later, or on another server. If it may have taken effect, retry it
only if it is idempotent.

The [simple API](api.md) uses the same statuses, except 400 instead of 409 and for a missing topic or partition, and 503
instead of 421. Its bodies have only the message. The header `flotilla-error-code` has the code. For `not_found`,
the header `flotilla-error-resource` has the missing resource.

| code | status | retryable | cause, and what to do |
|---|---|---|---|
"""


def write_docs() -> str:
    """Return the page, with codes sorted by status and name."""
    rows = sorted((known.status, code, known.meaning) for code, known in CODES.items())
    lines = (
        f"| `{code}` | {status} | {'yes' if code in RETRYABLE else 'no'} | {meaning} |\n"
        for status, code, meaning in rows
    )
    return _HEAD + "".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check that it is up to date."""
    if list(arguments) not in ([], ["--check"]):
        print("usage: error_docs.py [--check]", file=sys.stderr)
        return 2
    text = write_docs()
    if not arguments:
        PATH.write_text(text, encoding="utf-8")
    elif not PATH.exists() or PATH.read_text(encoding="utf-8") != text:
        print(f"{PATH.name} is outdated; run tools/error_docs.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
