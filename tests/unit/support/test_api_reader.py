import pytest

from cluster.harness.api_reader import Request, parse


@pytest.mark.parametrize(
    ("words", "path", "selector"),
    [
        (("pods",), "/api/v1/namespaces/flotilla/pods", None),
        (("pod", "flotilla-broker-0"), "/api/v1/namespaces/flotilla/pods/flotilla-broker-0", None),
        (("statefulset/b",), "/apis/apps/v1/namespaces/flotilla/statefulsets/b", None),
        (("topics", "--selector=a in (b,c)"), "/apis/flotilla.dev/v1/namespaces/flotilla/topics", "a in (b,c)"),
    ],
)
def test_kubectl_arguments_become_an_api_path(words: tuple[str, ...], path: str, selector: str | None) -> None:
    assert parse(words, "flotilla") == Request(path, selector)


@pytest.mark.parametrize(
    "words", [("nodes",), ("pod,service",), ("pods", "--watch"), ("pod", "x", "--ignore-not-found")]
)
def test_other_arguments_are_left_to_kubectl(words: tuple[str, ...]) -> None:
    assert parse(words, "flotilla") is None
