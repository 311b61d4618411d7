"""The public names of the package: their reference page, their docstrings, and how they are loaded."""

import inspect
import pickle
import re
import subprocess
import sys
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from pathlib import Path

import pytest

import flotilla
from flotilla.client import errors

DOCS = Path(__file__).parents[3] / "docs"
NAMES = sorted(set(flotilla.__all__) - {"__version__"})
CLASSES = [getattr(flotilla, name) for name in NAMES]
EXCEPTIONS = [kind for kind in CLASSES if issubclass(kind, Exception)]
PUBLIC_MODULES = {"flotilla", "flotilla.testing", "flotilla.records", "flotilla.arrow", "flotilla.myqueue"}
ROOT = DOCS.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "spark-apps" / "README.md", *sorted(DOCS.glob("**/*.md"))]


def reference() -> str:
    return (DOCS / "client-reference.md").read_text(encoding="utf-8")


def test_reference_page_lists_every_public_name() -> None:
    listed = re.findall(r"^\| (?:&nbsp;)*`([A-Z]\w+)` \|", reference(), re.MULTILINE)
    assert sorted(listed) == NAMES


def test_all_lists_every_name_that_is_loaded_on_first_use() -> None:
    assert sorted(flotilla._MODULES) == NAMES
    assert set(NAMES) <= set(dir(flotilla))
    with pytest.raises(AttributeError, match="module 'flotilla' has no attribute 'Place'"):
        flotilla.Place  # noqa: B018 - the access raises


@pytest.mark.parametrize("kind", CLASSES, ids=NAMES)
def test_public_class_has_a_docstring_of_its_own(kind: type) -> None:
    text = vars(kind).get("__doc__") or ""
    assert text.strip()
    assert not text.startswith(f"{kind.__name__}("), "the docstring is a generated signature"


@pytest.mark.parametrize("kind", CLASSES, ids=NAMES)
def test_public_method_has_a_docstring(kind: type) -> None:
    methods = [
        name
        for name, found in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(found) or isinstance(found, property))
    ]
    assert [name for name in methods if not inspect.getdoc(getattr(kind, name))] == []


def public_members(kind: type) -> set[str]:
    """List methods, properties and fields of a class, and attributes that it sets on itself; values of an enum."""
    if issubclass(kind, StrEnum):
        return set(kind)
    own = [one for one in kind.__mro__ if one.__module__.partition(".")[0] == "flotilla"]
    names = {name for one in own for name in (*vars(one), *getattr(one, "__annotations__", ()))}
    for method in (found for one in own for found in vars(one).values() if inspect.isfunction(found)):
        with suppress(OSError):  # a generated method has no source
            names.update(re.findall(r"\bself\.(\w+)(?:: [^=\n]+)? = ", inspect.getsource(method)))
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("kind", CLASSES, ids=NAMES)
def test_reference_page_names_every_public_member(kind: type) -> None:
    words = {word for code in re.findall(r"`([^`\n]+)`", reference()) for word in re.findall(r"\w+", code)}
    assert public_members(kind) - words == set()


def test_every_exception_of_the_client_is_public() -> None:
    defined = {name for name, kind in vars(errors).items() if inspect.isclass(kind) and issubclass(kind, Exception)}
    assert defined == {kind.__name__ for kind in EXCEPTIONS}


def test_traceback_names_the_public_module_of_an_exception() -> None:
    assert {kind.__module__ for kind in EXCEPTIONS} == {"flotilla"}
    assert pickle.loads(pickle.dumps(errors.TopicExists)) is errors.TopicExists  # noqa: S301 - our own


def test_subclass_outside_of_the_package_keeps_its_module() -> None:
    class Own(flotilla.FlotillaError):
        """An exception of an application."""

    assert Own.__module__ == __name__


@pytest.mark.parametrize("kind", [flotilla.ProducerOptions, flotilla.ConsumerOptions, flotilla.RangeOptions])
def test_reference_page_and_docstring_name_every_option(kind: type) -> None:
    (row,) = [line for line in reference().splitlines() if line.startswith(f"| `{kind.__name__}` |")]
    for name in kind.__annotations__:
        assert f"`{name}`" in row
        assert re.search(rf"\b{name}[:,]", kind.__doc__ or ""), name


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        (flotilla.Client, "consumer"),
        (flotilla.Client, "appender"),
        (flotilla.Producer, "send"),
        (flotilla.Producer, "send_many"),
        (flotilla.Appender, "append"),
        (flotilla.Consumer, "records"),
    ],
)
def test_reference_page_names_every_parameter(kind: type, method: str) -> None:
    (line,) = [line for line in reference().splitlines() if line.startswith(f"| `{method}(")]
    named = re.findall(r"\*{0,2}(\w+)(?:=[^,)]+)?[,)]", line.split("`")[1].partition("(")[2])
    assert named == [name for name in inspect.signature(getattr(kind, method)).parameters if name != "self"]


def imports(text: str) -> list[tuple[str, set[str]]]:
    """List the imports of a page from the package: each module, and the names that are imported from it."""
    rows = re.findall(
        r"^(?:>>>|\.\.\.)?[ \t]*from (flotilla(?:\.[\w.]+)?) import (\([^)]*\)|[^\n]+)", text, re.MULTILINE
    )
    found = [(module, re.sub(r"#[^\n]*", "", names)) for module, names in rows]
    named = [
        (module, {one.split()[0] for one in names.strip("()").split(",") if one.strip()}) for module, names in found
    ]
    whole = re.findall(r"^(?:>>>|\.\.\.)?[ \t]*import ([\w., \t]+)", text, re.MULTILINE)
    modules = [one.split()[0] for row in whole for one in row.split(",") if one.strip()]
    return named + [(one, set()) for one in modules if one == "flotilla" or one.startswith("flotilla.")]


def test_imports_of_a_page_are_found() -> None:
    page = """
from flotilla import Client
>>> from flotilla.arrow import SCHEMA as columns
    def f():
        from flotilla.net import Pool  # internal
        import os, flotilla.limits as limits
...     import flotilla
from flotilla.records import (
    decode,  # to objects
    encode,
)
from flotilla_broker.log import open_folder
The imports from flotilla are public.
"""
    assert imports(page) == [
        ("flotilla", {"Client"}),
        ("flotilla.arrow", {"SCHEMA"}),
        ("flotilla.net", {"Pool"}),
        ("flotilla.records", {"decode", "encode"}),
        ("flotilla.limits", set()),
        ("flotilla", set()),
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_import_public_names_only(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = imports(text)
    assert {module for module, _ in found} <= PUBLIC_MODULES
    for module, names in found:
        assert names <= set(import_module(module).__all__), module
    assert re.findall(r"flotilla\.client\.\w+", text) == []


@pytest.mark.parametrize("name", sorted(PUBLIC_MODULES))
def test_public_module_lists_its_names(name: str) -> None:
    module = import_module(name)
    assert [one for one in module.__all__ if not hasattr(module, one)] == []


INTERNAL_MODULES = ("access", "groups", "limits", "net", "producers", "protocol", "streams", "units")


@pytest.mark.parametrize("name", INTERNAL_MODULES)
def test_docstring_of_an_internal_module_says_so(name: str) -> None:
    assert (import_module(f"flotilla.{name}").__doc__ or "").startswith("Internal: ")


def test_package_loads_no_client_before_it_is_used() -> None:
    script = "import sys, flotilla; print([name for name in sys.modules if name.startswith(('flotilla.', 'msgspec'))])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
