"""The client library inside and outside of a pod: it selects the direct or the gateway route itself."""

import re

import httpx

from flotilla import Client
from support.release import Release

_IN_POD = """
import sys
from flotilla import Client
token = open("/dev/stdin").readline().strip()
with Client(sys.argv[1], token=token) as client:
    client.topics.create("inside", partitions=2, exist_ok=True)
    with client.producer() as producer:
        for number in range(1000):
            producer.send("inside", b"%d" % number, partition=number % 2)
    with client.consumer("inside") as consumer:
        print(sum(1 for _ in consumer.records(until="end")))
"""


def appends_at_readers(release: Release) -> int:
    """Count the appends that readers have passed on."""
    count = 0
    for pod in release.pods("reader"):
        with release.forward(f"pod/{pod}", 8080) as url:
            text = httpx.get(f"{url}/metrics", timeout=30).text
        count += sum(
            int(float(found)) for found in re.findall(r'flotilla_requests_total{call="/v1/append".*} (\S+)', text)
        )
    return count


def test_client_in_a_pod_sends_records_directly_to_brokers(release: Release, token: str) -> None:
    before = appends_at_readers(release)
    pod = release.pods("reader")[0]
    output = release.cluster.kubectl(
        f"--namespace={release.namespace}",
        "exec",
        "-i",
        pod,
        "--",
        "python3",
        "-c",
        _IN_POD,
        "http://flotilla",
        text=f"{token}\n",
    )
    assert output.split() == ["1000"]
    assert appends_at_readers(release) == before


def test_client_outside_sends_records_through_readers(release: Release, token: str) -> None:
    before = appends_at_readers(release)
    with Client(release.url, token=token) as client:
        client.topics.create("outside", partitions=2)
        with client.producer() as producer:
            for number in range(1000):
                producer.send("outside", b"%d" % number, partition=number % 2)
        with client.consumer("outside") as consumer:
            assert sum(1 for _ in consumer.records(until="end")) == 1000
    assert appends_at_readers(release) > before
