"""A group consumer as its own process, which tests can stop and kill. It writes the records that it receives.

    python groupchild.py URL GROUP TOPIC SESSION_S FILE MEMBER_ID

Each line is `partition offset value`, written before the next record is fetched. It exits cleanly on SIGTERM.
"""

import signal
import sys
from pathlib import Path

from flotilla.client.async_consumer import AsyncConsumer
from flotilla.client.config import ConsumerConfig, load_client
from flotilla.client.consumer import Consumer
from flotilla.client.engine import Engine
from flotilla.client.runner import Runner


def main(url: str, group: str, topic: str, session_s: str, file: str, member_id: str) -> None:
    runner = Runner()

    async def make() -> AsyncConsumer:
        engine = Engine(load_client(url, environment={}))
        config = ConsumerConfig(session_s=float(session_s), auto_commit_s=0.2)
        return AsyncConsumer(engine, config, topic, group=group, member_id=member_id)

    with Path(file).open("a", buffering=1) as out, Consumer(runner, runner.run(make())) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        out.writelines(f"{record.partition} {record.offset} {record.value.decode()}\n" for record in consumer)
    runner.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
