"""The section about Kubernetes of the README: its commands install the system that all tests here use."""

import subprocess

import pytest

from support.walk import blocks, first_hour


def test_readme_commands_install_flotilla_and_deliver_a_message(
    walked: subprocess.CompletedProcess[str] | None,
) -> None:
    """On an empty cluster that has the image, each command works unchanged."""
    if walked is None:
        pytest.skip("the README uses images without a registry: leave FLOTILLA_IMAGES empty")
    assert first_hour().count("\n") > 5
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "Phase:          Succeeded" in walked.stdout, "the chart's own test"
    assert "one parcel" in walked.stdout.splitlines()
    assert '"value":"one parcel"' in walked.stdout, "the response to curl"


def test_readme_tables_match_the_output_of_kubectl(walked: subprocess.CompletedProcess[str] | None) -> None:
    """Tables of `kubectl get` have the same columns, resources and states. Numbers and ages differ."""
    if walked is None:
        pytest.skip("the README uses images without a registry: leave FLOTILLA_IMAGES empty")
    (shown,) = blocks("README.md", "On Kubernetes", "text")
    assert states(shown) == states(walked.stdout)


def states(text: str) -> list[tuple[str, ...]]:
    """Parse tables: the column names, and NAME, READY and REASON of each row."""
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
