"""Report words of the project's old vocabulary in docs and code, each with what to write instead.

Usage: check_wording.py

The words are in wording.toml. In docs, code blocks and `code` are not checked: they quote programs. In Python, names
are checked where they are defined, and comments, docstrings and strings of several words like docs. In YAML,
templates, scripts and files such as `Makefile`, every line is checked. Names of files are checked, too.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = Path(__file__).with_name("wording.toml")
_FENCE = "```"
_CODE = re.compile(r"`[^`\n]*`")
_NAME = re.compile(r"[A-Za-z_]\w*")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
_TEMPLATES = {".yaml", ".yml", ".tpl", ".txt", ".sh"}
_FILES = {"Dockerfile", "Makefile", "pyproject.toml", "run"}  # checked like templates
_SKIPPED = {"__pycache__", ".venv", "node_modules", "build", "dist"}


@dataclass(frozen=True)
class Finding:
    """A retired word in a line of a file."""

    page: str
    line: int
    word: str
    use: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.word!r}; use: {self.use}"


class Vocabulary:
    """Retired words, names, module names and parts of names, as regular expressions, with their replacements."""

    def __init__(
        self,
        words: Mapping[str, str],
        names: Mapping[str, str] | None = None,
        modules: Mapping[str, str] | None = None,
        parts: Mapping[str, str] | None = None,
    ) -> None:
        self._parts = {re.compile(pattern, re.IGNORECASE): use for pattern, use in (parts or {}).items()}
        self._words = {re.compile(pattern, re.IGNORECASE): use for pattern, use in words.items()}
        self._names = {re.compile(pattern): use for pattern, use in (names or {}).items()}
        self._modules = {re.compile(pattern): use for pattern, use in (modules or {}).items()}
        self._any = re.compile("|".join(f"(?:{pattern})" for pattern in words) or r"(?!)", re.IGNORECASE)
        self.check_name = lru_cache(maxsize=None)(self._check_name)

    def find(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Find the retired words of a text: position, word and replacement."""
        if self._any.search(text):
            for pattern, use in self._words.items():
                yield from ((match.start(), match[0], use) for match in pattern.finditer(text))

    def check_module(self, name: str) -> str | None:
        """Return what to use instead of a retired module name; None if it is not retired."""
        return self._check(name, self._modules)

    def _check_name(self, name: str) -> str | None:
        """Return what to use instead of a retired name; None if it is not retired."""
        return self._check(name, self._names)

    def _check(self, name: str, retired: Mapping[re.Pattern[str], str]) -> str | None:
        bare = name.strip("_")
        for pattern, use in retired.items():
            if pattern.fullmatch(bare):
                return use
        spaced = _WORD_START.sub(" ", bare)
        for part in spaced.split():
            for pattern, use in self._parts.items():
                if pattern.fullmatch(part):
                    return use
        return next((use for _, _, use in self.find(spaced)), None)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a page without code."""
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith(_FENCE):
            is_code = not is_code
        elif not is_code:
            yield number, _CODE.sub("", line)


def find(page: str, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Find the retired words of a page of the docs, and of its name."""
    name = Path(page).stem.replace("-", " ")
    yield from (Finding(page, 1, word, use) for _, word, use in vocabulary.find(name))
    for number, line in prose(text):
        yield from (Finding(page, number, word, use) for _, word, use in vocabulary.find(line))


def find_in_template(page: str, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Find the retired words of YAML, a template, a script or another text file."""
    for number, line in enumerate(text.splitlines(), start=1):
        yield from (Finding(page, number, word, use) for _, word, use in vocabulary.find(_CODE.sub("", line)))


def find_in_python(page: str, text: str, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Find the retired words and names of a Python module. Modules without any are not parsed, to save time."""
    module_use = vocabulary.check_module(Path(page).stem)
    if module_use is not None:
        yield Finding(page, 1, Path(page).stem, module_use)
    has_names = any(vocabulary.check_name(name) for name in set(_NAME.findall(text)))
    has_words = any(True for _ in vocabulary.find(text))
    if not has_names and not has_words:
        return
    tree = ast.parse(text)
    for node in ast.walk(tree) if has_names else ():
        for line, name in _defined_names(node):
            use = vocabulary.check_name(name)
            if use is not None:
                yield Finding(page, line, name, use)
    for start, words in (*_strings(tree), *_comments(text)) if has_words else ():
        bare = _CODE.sub("", words)
        for at, word, use in vocabulary.find(bare):
            yield Finding(page, start + bare.count("\n", 0, at), word, use)


def _defined_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.lineno, node.name
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.attr


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield strings of several words, with their lines; a single word is a key or a code."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):  # a word between two values is text, too
            for part in node.values:
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and _is_word(part.value):
                    yield part.lineno, part.value


def _is_word(text: str) -> bool:
    """Whether a text is one word with a space around it."""
    return " " in text and " " not in text.strip()


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def check(root: Path, settings: Mapping[str, Any]) -> list[Finding]:
    """Check all pages and folders that the settings name."""
    words = Vocabulary(settings["retired"])
    in_code = {**settings["retired"], **settings.get("retired-in-code", {})}
    code = Vocabulary(in_code, settings.get("names"), settings.get("modules"), settings.get("parts-of-names"))
    pages = {path.relative_to(root).as_posix() for pattern in settings["docs"]["files"] for path in root.glob(pattern)}
    found = [
        finding
        for page in sorted(pages - set(settings["docs"].get("except", ())))
        for finding in find(page, (root / page).read_text(encoding="utf-8"), words)
    ]
    listed = settings.get("code", {})
    for path in _code_files(root, listed.get("folders", ())):
        name = path.relative_to(root).as_posix()
        if name not in listed.get("except", ()):
            search = find_in_python if path.suffix == ".py" else find_in_template
            found += search(name, path.read_text(encoding="utf-8"), code)
    allowed = settings.get("allowed", {})
    return [one for one in found if one.word.lower() not in allowed.get(one.page, ())]


def _code_files(root: Path, folders: Sequence[str]) -> list[Path]:
    found: set[Path] = set()
    for folder in folders:
        place = root / folder
        if not place.exists():
            raise FileNotFoundError(f"[code] folders names {folder}, which does not exist")
        found.update([place] if place.is_file() else place.rglob("*"))
    return sorted(
        path
        for path in found
        if path.is_file()
        and (path.suffix == ".py" or path.suffix in _TEMPLATES or path.name in _FILES)
        and not _SKIPPED.intersection(path.relative_to(root).parts)
    )


def main() -> int:
    """Print what was found; return the exit code."""
    found = check(ROOT, tomllib.loads(SETTINGS.read_text(encoding="utf-8")))
    for finding in found:
        print(finding)
    if found:
        print(f"{len(found)} retired words; where one is right, allow it for the file in tools/{SETTINGS.name}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
