import tomllib
from pathlib import Path

import check_wording
import pytest
from check_wording import Finding, Vocabulary, check, find, find_in_python, find_in_template

WORDS = {r"\btells?\b": "return"}
VOCABULARY = Vocabulary(WORDS, {"Turns?": "Reconciler"}, {"turns": "reconciler"})


def test_retired_word_is_found_with_its_line_and_replacement() -> None:
    found = list(find("a.md", "# Title\n\nIt Tells it.\n", VOCABULARY))
    assert found == [Finding("a.md", 3, "Tells", "return")]
    assert str(found[0]) == "a.md:3: 'Tells'; use: return"


def test_code_in_docs_is_not_checked() -> None:
    text = "It is `tell()`.\n```python\ntell()\n```\nfine\n"
    assert list(find("a.md", text, VOCABULARY)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Tell it."""\n', [(1, "Tell")]),
        ('"""Fine.\n\nThey tell it.\n"""\n', [(3, "tell")]),
        ("a = 1\nb = 2  # as they tell it\n", [(2, "tell")]),
        ('raise ValueError("they tell it")\n', [(1, "tell")]),
        ('raise ValueError(f"they tell {1} it")\n', [(1, "tell")]),
        ('"""Call `tell` for it."""\n', []),
        ('key = "tell"\n', []),  # one word is a key
        ("import tell\n\ntell.tell(1)\n", []),  # uses of a name that is defined elsewhere
        ("def tell_it() -> None: ...\n", [(1, "tell_it")]),
        ("class DoTell: ...\n", [(1, "DoTell")]),
        ("def f(tell: int) -> None: ...\n", [(1, "tell")]),
        ("self.tell = 1\n", [(1, "tell")]),
        ("class _Turn: ...\n", [(1, "_Turn")]),
        ("class Turnstile: ...\n", []),
        ("teller = 1\n", []),
    ],
)
def test_python_is_checked_in_comments_strings_and_defined_names(text: str, found: list[tuple[int, str]]) -> None:
    assert [(one.line, one.word) for one in find_in_python("a.py", text, VOCABULARY)] == found


def test_module_name_is_checked() -> None:
    assert list(find_in_python("x/turns.py", "", VOCABULARY)) == [Finding("x/turns.py", 1, "turns", "reconciler")]
    assert list(find_in_python("x/tell_all.py", "", VOCABULARY)) == [Finding("x/tell_all.py", 1, "tell_all", "return")]


def test_yaml_is_checked_line_by_line() -> None:
    text = "a: 1  # They tell.\ndescription: >\n  Tells it, see `tell`.\n"
    assert [(one.line, one.word) for one in find_in_template("a.yaml", text, VOCABULARY)] == [(1, "tell"), (3, "Tells")]


def test_only_listed_folders_are_checked_and_allowed_words_are_not_reported(tmp_path: Path) -> None:
    for name in (
        "a.md",
        "b.md",
        "c.md",
        "new/v.py",
        "new/x.py",
        "new/y.yaml",
        "new/build/z.py",
        "old/x.py",
        "one.py",
        "two.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("# They tell.\n")
    settings = {
        "retired": WORDS,
        "docs": {"files": ["*.md"], "except": ["b.md"]},
        "code": {"folders": ["new", "one.py", "two.py"], "except": ["new/v.py"]},
        "allowed": {"c.md": ["tell"], "two.py": ["tell"]},
    }
    assert [finding.page for finding in check(tmp_path, settings)] == ["a.md", "new/x.py", "new/y.yaml", "one.py"]
    with pytest.raises(FileNotFoundError, match="names missing"):
        check(tmp_path, {**settings, "code": {"folders": ["missing"]}})


def test_every_pattern_has_a_replacement() -> None:
    settings = tomllib.loads(check_wording.SETTINGS.read_text(encoding="utf-8"))
    for table in ("retired", "retired-in-code", "modules", "names"):
        assert settings[table]
        assert all(settings[table].values())
