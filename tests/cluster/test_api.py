"""The simple API and the v1 API through the Service and through the Ingress."""

import os
import ssl
import time
from collections.abc import Iterator

import httpx
import pytest
import trustme

from flotilla.records import encode
from support.access import bearer
from support.cluster import wait_until
from support.release import Release

_HOST = "flotilla.example"
_IN_POD = """
import json, os, time
from http.client import HTTPConnection
from urllib.parse import urlencode
from flotilla.records import decode, encode

token = input()
connection = HTTPConnection("flotilla", timeout=60)

def request(method, path, body=None, **query):
    target = path + "?" + urlencode(query) if query else path
    kind = "application/vnd.flotilla.batch" if isinstance(body, bytes) else "application/json"
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(method, target, data, {"Authorization": "Bearer " + token, "Content-Type": kind})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return content

def call(*arguments, **query):
    return json.loads(request(*arguments, **query))

call("POST", "/topics", {"name": "service", "number_of_partitions": 1})
producer = call("POST", "/producer/register", {"topic": "service"})["producer_id"]
consumer = call("POST", "/consumer/register", {"topic": "service"})["consumer_id"]
for text in ("one", "two"):
    call("POST", "/producer/produce", {"topic": "service", "producer_id": producer, "message": text})
print(call("GET", "/consumer/consume", topic="service", consumer_id=consumer)["message"])
print(call("GET", "/consumer/consume", {"topic": "service", "consumer_id": consumer})["message"])
partition = {"topic": "service", "partition": 0}
request("POST", "/v1/append", bytes(encode([os.urandom(1 << 20)])), **partition)
print(len(decode(request("GET", "/v1/fetch", offset=2, **partition)).values[0]))
began = time.monotonic()
assert request("GET", "/v1/fetch", offset=3, wait_ms=5000, **partition) == b""
print("waited" if time.monotonic() - began > 4.9 else "did not wait")
"""


@pytest.fixture(scope="module")
def api(release: Release, token: str) -> Iterator[httpx.Client]:
    """HTTP client of the API, through the ingress."""
    release.wait_reachable()
    with httpx.Client(base_url=release.url, headers=bearer(token), timeout=60) as client:
        yield client


def test_simple_api_produces_and_consumes_through_the_ingress(api: httpx.Client) -> None:
    """Parameters of a GET may be in the query or in the body."""
    assert api.post("/topics", json={"name": "simple"}).json()["status"] == "success"
    producer = api.post("/producer/register", json={"topic": "simple"}).json()["producer_id"]
    consumer = api.post("/consumer/register", json={"topic": "simple"}).json()["consumer_id"]
    for text in ("one", "two"):
        body = {"topic": "simple", "producer_id": producer, "message": text}
        assert api.post("/producer/produce", json=body).json()["status"] == "success"
    parameters = {"topic": "simple", "consumer_id": consumer}
    assert api.get("/consumer/consume", params=parameters).json()["message"] == "one"
    assert api.request("GET", "/consumer/consume", json=parameters).json()["message"] == "two"
    assert api.get("/size", params=parameters).json()["size"] == 0


def test_ingress_passes_large_batches_and_long_polls(api: httpx.Client) -> None:
    """A batch of 1 MiB, and a fetch that waits 20 s for records."""
    assert api.post("/v1/topics", json={"name": "large", "partitions": 1}).status_code == 200
    value = os.urandom(1 << 20)
    partition: dict[str, str | int] = {"topic": "large", "partition": 0}
    batch = bytes(encode([value]))
    assert api.post("/v1/append", params=partition, content=batch).json()["base_offset"] == 0
    assert value in api.get("/v1/fetch", params={**partition, "offset": 0}).content
    began = time.monotonic()
    waited = api.get("/v1/fetch", params={**partition, "offset": 1, "wait_ms": 20_000})
    assert waited.status_code == 200
    assert waited.content == b""
    assert time.monotonic() - began > 19


def test_ingress_does_not_expose_the_control_api(api: httpx.Client, release: Release, token: str) -> None:
    for path in ("/v1/control/state", "/metrics", "/v1/%63ontrol/state"):
        assert (path, api.get(path).status_code) == (path, 404)
    with release.forward("service/flotilla-writer", 8080) as url:
        assert httpx.get(f"{url}/v1/control/state", headers=bearer(token), timeout=30).status_code == 200


def test_ingress_routes_admin_requests_to_the_writer(api: httpx.Client) -> None:
    brokers = api.get("/brokers").json()["brokers"]
    assert len(brokers) == 3
    rejected = api.post("/admin/broker/remove", json={"broker_host": "unknown:1"})
    assert (rejected.status_code, rejected.json()["status"]) == (400, "failure")


@pytest.mark.usefixtures("api")
def test_request_without_token_is_rejected(release: Release) -> None:
    assert httpx.get(f"{release.url}/topics", timeout=30).status_code == 401


def test_service_serves_the_same_api_inside_the_cluster(release: Release, token: str) -> None:
    """From a pod, by the name of the Service: a GET with query and with body, a batch of 1 MiB, a long poll."""
    output = release.cluster.kubectl(
        f"--namespace={release.namespace}",
        "exec",
        "-i",
        release.pods("writer")[0],
        "--",
        "python3",
        "-c",
        _IN_POD,
        text=f"{token}\n",
    )
    assert output.split() == ["one", "two", "1048576", "waited"]


def test_ingress_terminates_tls(release: Release, token: str) -> None:
    """With a host and a certificate, the ingress serves the same API over HTTPS."""
    authority = trustme.CA()
    certificate = authority.issue_cert(_HOST)
    with certificate.private_key_and_cert_chain_pem.tempfile() as pem:
        release.kubectl("create", "secret", "tls", "certificate", f"--cert={pem}", f"--key={pem}")
    flags = [
        f"--set=ingress.host={_HOST}",
        "--set=ingress.tls.enabled=true",
        "--set=ingress.tls.secretName=certificate",
    ]
    release.upgrade(*flags)
    try:
        with authority.cert_pem.tempfile() as trusted:
            address = f"https://{release.cluster.https}"
            headers = {**bearer(token), "host": _HOST}

            def get_topics() -> int:
                try:
                    return get_over_https(address, "/topics", headers, trusted)
                except httpx.HTTPError:
                    return 0  # the controller has not loaded the certificate yet

            wait_until("a response over HTTPS", lambda: get_topics() == 200)
    finally:
        release.upgrade()
        release.wait_reachable()


def get_over_https(address: str, path: str, headers: dict[str, str], trusted: str) -> int:
    """Send a GET to an address over HTTPS with the SNI of the ingress host; return the status code."""
    with httpx.Client(verify=ssl.create_default_context(cafile=trusted), timeout=10) as client:
        request = client.build_request("GET", f"{address}{path}", headers=headers, extensions={"sni_hostname": _HOST})
        return client.send(request).status_code
