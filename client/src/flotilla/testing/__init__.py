"""A system in memory, in the process of a test: for those who test programs that use Flotilla, without any servers.

    from flotilla.testing import FakeFlotilla

    with FakeFlotilla() as fake, fake.client() as client:
        client.topics.create("orders", partitions=1)
        with client.producer() as producer:
            producer.send("orders", b"one coffee")
        assert [record.value for record in fake.records("orders")] == [b"one coffee"]

The client library is the real one: it speaks HTTP with the fake, which answers as managers and brokers do. What becomes
of consumer groups, of retries and of batches is decided by the very code that the servers run. `docs/testing.md` tells
what can be made to fail, and what is not there.
"""

from flotilla.testing.fake import FakeFlotilla

__all__ = ["FakeFlotilla"]
