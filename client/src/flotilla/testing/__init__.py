"""An in-memory Flotilla system for tests of programs that use the client, without servers.

    from flotilla.testing import FakeFlotilla

    with FakeFlotilla() as fake, fake.client() as client:
        client.topics.create("orders", partitions=1)
        with client.producer() as producer:
            producer.send("orders", b"one coffee")
        assert [record.value for record in fake.records("orders")] == [b"one coffee"]

The client is the real one: it sends HTTP requests to the fake, which responds as managers and brokers do. Consumer
groups, retries of producers and record batches are handled by the code that the servers run. `docs/testing.md` lists
the faults that can be injected, and the limitations.
"""

from flotilla.testing.fake import FakeFlotilla

__all__ = ["FakeFlotilla"]
