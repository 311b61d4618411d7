"""Queues with few words: `enqueue`, `dequeue`, `get_size`, `can_dequeue`. A thin layer over `flotilla.Client`.

    from flotilla.myqueue import Consumer, Producer

    with Consumer(["T1"], "127.0.0.1:8080") as consumer, Producer(["T1"], "127.0.0.1:8080") as producer:
        producer.enqueue("T1", "hello")
        print(consumer.dequeue("T1"))

Messages are text. `Producer` and `MyProducer` are the same class, and so are `Consumer` and `MyConsumer`: which name is
known is a matter of where one comes from. `ApiHandler` makes the calls of the HTTP API for people, one method for each.
Errors are those of `flotilla.client.errors`. Whoever wants keys, batches, groups or speed takes `flotilla.Client`.
"""

from flotilla.myqueue.consumers import MyConsumer
from flotilla.myqueue.handler import ApiHandler
from flotilla.myqueue.producers import MyProducer

Consumer = MyConsumer
Producer = MyProducer

__all__ = ["ApiHandler", "Consumer", "MyConsumer", "MyProducer", "Producer"]
