"""What the README says about Kubernetes: the system that all tests here use was installed by it."""

import subprocess

import pytest

from support.walk import readme


def test_the_readme_leads_from_nothing_to_a_message_through_the_ingress(
    walked: subprocess.CompletedProcess[str] | None,
) -> None:
    """On an empty cluster that has the image, every command works as it stands."""
    if walked is None:
        pytest.skip("the images are in a registry, which the README does not know: leave FLOTILLA_IMAGES empty")
    assert readme().count("\n") > 5
    assert walked.returncode == 0, walked.stdout + walked.stderr
    assert "Phase:          Succeeded" in walked.stdout, "the chart's own test"
    assert walked.stdout.splitlines()[-1] == "one parcel"
