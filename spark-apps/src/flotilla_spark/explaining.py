"""Why Spark has failed, in one line: the last words of the Python in it, if there are any, or its own. Pure."""

import re

_TRACEBACK = "Traceback (most recent call last):"
_LAST_WORDS = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:: (?P<text>.+))?$")
_CAUSED = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_STATE = re.compile(r" *SQLSTATE: \w+.*$")
_LIMIT = 1000


def explain(text: str) -> str:
    """Find the reason in what Spark says."""
    found = _from_python(text) or _from_java(text)
    return found if len(found) <= _LIMIT else f"{found[:_LIMIT]} …"


def _from_python(text: str) -> str | None:
    """Find the line behind a traceback that is not indented: it is an exception with its text."""
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
    """Find the last error that has a class of Spark's, or the last cause, or else the first line."""
    classed = [part.splitlines()[0] for part in _CLASS.split(text)[1:] if part.strip()]
    lines = classed[-1:] or _CAUSED.findall(text)[-1:] or text.strip().splitlines()[:1]
    return _STATE.sub("", lines[0]).strip() if lines else "Spark does not say why"
