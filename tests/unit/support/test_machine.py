"""What the test cluster needs from Debian is said in three places, and all say the same."""

from cluster.harness.images import ROOT
from cluster.harness.machine import PACKAGES


def test_docs_list_the_packages_of_the_test_cluster() -> None:
    page = (ROOT / "docs" / "test-cluster.md").read_text(encoding="utf-8")
    assert f"apt-get install {' '.join(PACKAGES)}\n" in page


NEWCOMER = {"curl", "git", "make", "python3", "python3-pip"}  # for `make test` as an ordinary user


def test_ci_installs_the_packages_of_the_cluster_browser_and_spark_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (line,) = (line for line in script.splitlines() if line.startswith("packages="))
    installed = set(line.partition("=")[2].strip('"').split())
    assert installed == {*PACKAGES, *NEWCOMER, "chromium", "openjdk-17-jre-headless"}
