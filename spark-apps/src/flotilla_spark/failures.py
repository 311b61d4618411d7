"""The reason of a Spark failure in one line: the last Python exception, else Spark's own error. Pure."""

import re

_TRACEBACK = "Traceback (most recent call last):"
_LAST_WORDS = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: (?P<text>.+))?$")
_CAUSED = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_STATE = re.compile(r" *SQLSTATE: \w+.*$")
_LIMIT = 1000


def summarize_failure(text: str) -> str:
    """Extract the reason from an error message of Spark."""
    found = _from_python(text) or _from_java(text)
    return found if len(found) <= _LIMIT else f"{found[:_LIMIT]} …"


def _from_python(text: str) -> str | None:
    """Find the last exception after a traceback: its first line without indentation."""
    reasons = []
    for part in text.split(_TRACEBACK)[1:]:
        for line in part.splitlines()[1:]:
            if line and not line[0].isspace():
                words = _LAST_WORDS.match(line)
                if words is not None:
                    reasons.append(words["text"] or line)
                break
    return reasons[-1].strip() if reasons else None


def _from_java(text: str) -> str:
    """Find the last error with a Spark error class, else the last cause, else the first line."""
    classed = [part.splitlines()[0] for part in _CLASS.split(text)[1:] if part.strip()]
    lines = classed[-1:] or _CAUSED.findall(text)[-1:] or text.strip().splitlines()[:1]
    return _STATE.sub("", lines[0]).strip() if lines else "Spark gave no reason"
