"""`ApiHandler` classifies errors by code, never by message."""

import json
from collections.abc import Iterator

import pytest

from flotilla.client.errors import NotAllowed, Refused, TopicExists, TopicMissing
from flotilla.myqueue import ApiHandler
from flotilla.testing import FakeFlotilla
from support.fakemanager import FakeManager, serving


@pytest.fixture
def manager() -> Iterator[FakeManager]:
    with serving() as manager:
        yield manager


def refuse(manager: FakeManager, message: str, status: int = 400, **headers: str) -> None:
    manager.status = status
    manager.answer = json.dumps({"status": "failure", "message": message}).encode()
    manager.headers = {f"flotilla-error-{name}": value for name, value in headers.items()}


def test_handler_classifies_errors_by_code(manager: FakeManager) -> None:
    with ApiHandler(manager.url) as api:
        refuse(manager, "other words", code="no_records")
        assert api.dequeue("t", "c") is None
        refuse(manager, "other words", code="not_found", resource="topic")
        with pytest.raises(TopicMissing, match="other words"):
            api.dequeue("t", "c")
        refuse(manager, "other words", code="exists")
        with pytest.raises(TopicExists, match="other words"):
            api.create_topic("t")
        refuse(manager, "No logs available to consume.", code="bad_request")
        with pytest.raises(Refused) as caught:
            api.dequeue("t", "c")
        assert (type(caught.value), caught.value.code) == (Refused, "bad_request")


def test_handler_does_not_classify_errors_without_a_code_by_message(manager: FakeManager) -> None:
    with ApiHandler(manager.url) as api:
        for message in (
            "No logs available to consume.",
            "Topic does not exist.",
            "Topic already exists.",
            "Consumer not registered with topic.",
        ):
            refuse(manager, message)
            with pytest.raises(Refused, match=message) as caught:
                api.dequeue("t", "c")
            assert (type(caught.value), caught.value.code) == (Refused, "unknown")
        refuse(manager, "a token is missing", 403)
        with pytest.raises(NotAllowed):
            api.list_topics()


def test_servers_send_the_codes_of_the_handler() -> None:
    with FakeFlotilla() as fake, ApiHandler(fake.url) as api:
        api.create_topic("t", partitions=1)
        consumer = api.register_consumer("t")
        assert api.dequeue("t", consumer) is None
        with pytest.raises(TopicExists):
            api.create_topic("t")
        for call in (
            lambda: api.dequeue("nowhere", consumer),
            lambda: api.size("nowhere", consumer),
            lambda: api.register_consumer("nowhere"),
            lambda: api.list_partitions("nowhere"),
            lambda: api.delete_topic("nowhere"),
        ):
            with pytest.raises(TopicMissing, match=r"Topic does not exist\.") as missing:
                call()
            assert missing.value.details == {"resource": "topic"}
        with pytest.raises(Refused) as caught:
            api.dequeue("t", "nobody")
        assert caught.value.code == "bad_request"
