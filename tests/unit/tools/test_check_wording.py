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


@pytest.mark.parametrize("name", ["Makefile", "pyproject.toml", "sub/pyproject.toml", "sub/run.sh"])
def test_scripts_and_project_files_are_checked(tmp_path: Path, name: str) -> None:
    (tmp_path / "code" / name).parent.mkdir(parents=True)
    (tmp_path / "code" / name).write_text("# fine\n# They tell it.\n")
    (tmp_path / "code" / "other.toml").write_text("# They tell it.\n")
    settings = {"retired": WORDS, "docs": {"files": []}, "code": {"folders": ["code"]}}
    assert check(tmp_path, settings) == [Finding(f"code/{name}", 2, "tell", "return")]


@pytest.mark.parametrize(
    "text",
    [
        "class Stand: ...\n",
        "class View: ...\n",
        "class Look: ...\n",
        "def look() -> None: ...\n",
        "async def _look() -> None: ...\n",
        "def letting_go() -> None: ...\n",
        "chance = 0.5\n",
        "# made anew\n",
        "# still to come: a change\n",
        'x = "there can only be more partitions"\n',
        'x = "that makes no sense"\n',
        'x = "whoever is let go"\n',
    ],
)
def test_project_vocabulary_reports_retired_names_and_phrases(text: str) -> None:
    assert list(find_in_python("a.py", text, project_vocabulary()))


@pytest.mark.parametrize(
    "text",
    ["class ViewSettings: ...\n", "class Standby: ...\n", "lookup = 1\n", "# Look it up in the table.\n", "x.look()\n"],
)
def test_project_vocabulary_permits_similar_names(text: str) -> None:
    assert list(find_in_python("a.py", text, project_vocabulary())) == []


def project_vocabulary() -> Vocabulary:
    settings = tomllib.loads(check_wording.SETTINGS.read_text(encoding="utf-8"))
    words = {**settings["retired"], **settings["retired-in-code"]}
    return Vocabulary(words, settings["names"], settings["modules"])


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
