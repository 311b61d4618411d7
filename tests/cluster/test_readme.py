"""What the README says about Kubernetes: the system that all tests here use was installed by it."""

import subprocess

import pytest

from support.walk import blocks, readme


def test_the_readme_leads_from_nothing_to_a_message_through_the_ingress(
    walked: subprocess.CompletedProcess[str] | None,
) -> None:
    """On an empty cluster that has the image, every command works as it stands."""
    if walked is None:
        pytest.skip("the images are in a registry, which the README does not know: leave FLOTILLA_IMAGES empty")
    assert readme().count("\n") > 5
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "Phase:          Succeeded" in walked.stdout, "the chart's own test"
    assert "one parcel" in walked.stdout.splitlines()


def test_what_the_readme_shows_is_what_one_sees(walked: subprocess.CompletedProcess[str] | None) -> None:
    """Tables of `kubectl get`: the same columns, the same resources, in the same state. Figures and ages differ."""
    if walked is None:
        pytest.skip("the images are in a registry, which the README does not know: leave FLOTILLA_IMAGES empty")
    (shown,) = blocks("README.md", "On Kubernetes", "text")
    assert states(shown) == states(walked.stdout)


def states(text: str) -> list[tuple[str, ...]]:
    """Read tables: their columns, and of each line the name, and whether it is ready, and why."""
    found: list[tuple[str, ...]] = []
    columns: list[str] = []
    for words in (line.split() for line in text.splitlines()):
        if words[:1] == ["NAME"]:
            columns = words
            found.append(tuple(words))
        elif columns and len(words) == len(columns) and "flotilla.dev/" in words[0]:
            line = dict(zip(columns, words, strict=True))
            found.append((line["NAME"], line["READY"], line["REASON"]))
    return found
