"""One producer of an experiment: sends what its log says, step by step.

The lines of a step are sent at the same time, without waiting for one before the next. The next step begins when all of
them were acknowledged. A step that fails ends it all: to go on behind a message that nobody knows of proves nothing.
"""

from collections.abc import Callable

from flotilla.client.blocking import Client
from flotilla.client.errors import FlotillaError
from flotilla.client.producer import Producer
from flotilla.experiments.consumer_logs import Origin
from flotilla.experiments.errors import StepFailed
from flotilla.experiments.producer_logs import Line, ProducerLog, producer_file


def produce(client: Client, log: ProducerLog, prefix: str, tell: Callable[[int], object]) -> int:
    """Send everything, telling how many messages are acknowledged; return their number. Raises StepFailed."""
    done = 0
    with client.producer() as producer:
        for step in log.steps():
            _send_step(producer, log.producer, step, prefix)
            done += len(step)
            tell(done)
    return done


def _send_step(producer: Producer, id_: int, step: tuple[Line, ...], prefix: str) -> None:
    line = step[0]
    deliveries = []
    try:
        for line in step:
            headers = Origin.for_headers(line)
            deliveries.append(producer.send(prefix + line.topic, line.message.encode(), headers=headers, partition=0))
        for at, delivery in enumerate(deliveries):
            line = step[at]
            delivery.result()
    except FlotillaError as error:
        raise StepFailed(f"{producer_file(id_)} line {line.number}: {error}") from error
