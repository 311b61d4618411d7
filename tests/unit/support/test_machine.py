"""What the test cluster needs from Debian is said in three places, and all say the same."""

from cluster.harness.images import ROOT
from cluster.harness.machine import PACKAGES


def test_the_docs_name_what_the_test_cluster_needs() -> None:
    page = (ROOT / "docs" / "test-cluster.md").read_text(encoding="utf-8")
    assert f"apt-get install {' '.join(PACKAGES)}\n" in page


def test_ci_installs_what_the_test_cluster_and_the_tests_of_browser_and_spark_need() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (line,) = (line for line in script.splitlines() if line.startswith("packages="))
    assert set(line.partition("=")[2].strip('"').split()) == {*PACKAGES, "chromium", "openjdk-17-jre-headless"}
