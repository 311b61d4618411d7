"""Consumers on an event loop in a thread, and records for them, sent over HTTP."""

from dataclasses import fields
from typing import Any, Self

from flotilla.client.async_consumer import AsyncConsumer
from flotilla.client.config import ConsumerConfig, load_client
from flotilla.client.consumer import Consumer
from flotilla.client.engine import Engine
from flotilla.client.runner import Runner
from flotilla.records import encode
from support.fleet import Fleet

_OF_CONFIG = {field.name for field in fields(ConsumerConfig)}


class Consumers:
    """A client that only consumes."""

    def __init__(self, url: str, route: str = "auto") -> None:
        self.runner = Runner()
        self._config = load_client(url, route=route, environment={})
        self.engine = self.runner.run(self._make_engine())

    async def _make_engine(self) -> Engine:
        return Engine(self._config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.call_soon(self.engine.close)
        self.runner.close()

    def make(self, topics: Any, **options: Any) -> Consumer:  # noqa: ANN401 - as a consumer takes them
        """Make a consumer; options are its own, or those of ConsumerConfig."""
        config = ConsumerConfig(**{name: value for name, value in options.items() if name in _OF_CONFIG})
        others = {name: value for name, value in options.items() if name not in _OF_CONFIG}

        async def make() -> AsyncConsumer:
            return AsyncConsumer(self.engine, config, topics, **others)

        return Consumer(self.runner, self.runner.run(make()))


def append(fleet: Fleet, topic: str, partition: int, values: list[bytes]) -> int:
    """Append a batch; return the offset of its first record."""
    params: dict[str, Any] = {"topic": topic, "partition": partition}
    response = fleet.client.post("/v1/append", params=params, content=bytes(encode(values)))
    assert response.status_code == 200, response.text
    return int(response.json()["base_offset"])


def create(fleet: Fleet, topic: str, partitions: int = 1, replication: int = 1) -> None:
    """Create a topic."""
    body = {"name": topic, "partitions": partitions, "replication": replication}
    response = fleet.client.post("/v1/topics", json=body)
    assert response.status_code == 200, response.text
