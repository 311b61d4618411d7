"""A minimal queue API on top of the client library: `enqueue`, `dequeue`, `get_size`, `can_dequeue`.

    from flotilla.myqueue import Consumer, Producer

    with Consumer(["T1"], "127.0.0.1:8080") as consumer, Producer(["T1"], "127.0.0.1:8080") as producer:
        producer.enqueue("T1", "hello")
        print(consumer.dequeue("T1"))

This package is an application of the library, not part of it. It uses the public API of `flotilla`, with exceptions:
`handler` sends raw requests, and arguments are parsed with functions of the client. The library does not import this
package. import-linter checks both.

Messages are text. `Producer` is an alias of `MyProducer`, and `Consumer` of `MyConsumer`. `ApiHandler` has one method
for each call of the simple API. Errors are those of `flotilla`. For keys, batches, groups and throughput,
use `flotilla.Client`.
"""

from flotilla.myqueue.consumers import MyConsumer
from flotilla.myqueue.handler import ApiHandler
from flotilla.myqueue.producers import MyProducer

Consumer = MyConsumer
Producer = MyProducer

__all__ = ["ApiHandler", "Consumer", "MyConsumer", "MyProducer", "Producer"]
