"""The HTTP API through the Service and through the Ingress, as people and programs use it."""

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

def ask(method, path, body=None, **query):
    target = path + "?" + urlencode(query) if query else path
    kind = "application/vnd.flotilla.batch" if isinstance(body, bytes) else "application/json"
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(method, target, data, {"Authorization": "Bearer " + token, "Content-Type": kind})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return content

def said(*words, **query):
    return json.loads(ask(*words, **query))

said("POST", "/topics", {"name": "service", "number_of_partitions": 1})
producer = said("POST", "/producer/register", {"topic": "service"})["producer_id"]
consumer = said("POST", "/consumer/register", {"topic": "service"})["consumer_id"]
for text in ("one", "two"):
    said("POST", "/producer/produce", {"topic": "service", "producer_id": producer, "message": text})
print(said("GET", "/consumer/consume", topic="service", consumer_id=consumer)["message"])
print(said("GET", "/consumer/consume", {"topic": "service", "consumer_id": consumer})["message"])
place = {"topic": "service", "partition": 0}
ask("POST", "/v1/append", bytes(encode([os.urandom(1 << 20)])), **place)
print(len(decode(ask("GET", "/v1/fetch", offset=2, **place)).values[0]))
began = time.monotonic()
assert ask("GET", "/v1/fetch", offset=3, wait_ms=5000, **place) == b""
print("waited" if time.monotonic() - began > 4.9 else "in haste")
"""


@pytest.fixture(scope="module")
def api(release: Release, token: str) -> Iterator[httpx.Client]:
    """The API, from outside, through the ingress."""
    release.wait_reachable()
    with httpx.Client(base_url=release.url, headers=bearer(token), timeout=60) as client:
        yield client


def test_people_produce_and_consume_through_the_ingress(api: httpx.Client) -> None:
    """Also with parameters in the body of a GET."""
    assert api.post("/topics", json={"name": "people"}).json()["status"] == "success"
    producer = api.post("/producer/register", json={"topic": "people"}).json()["producer_id"]
    consumer = api.post("/consumer/register", json={"topic": "people"}).json()["consumer_id"]
    for text in ("one", "two"):
        body = {"topic": "people", "producer_id": producer, "message": text}
        assert api.post("/producer/produce", json=body).json()["status"] == "success"
    asked = {"topic": "people", "consumer_id": consumer}
    assert api.get("/consumer/consume", params=asked).json()["message"] == "one"
    assert api.request("GET", "/consumer/consume", json=asked).json()["message"] == "two"
    assert api.get("/size", params=asked).json()["size"] == 0


def test_large_batches_and_long_polls_pass_the_ingress(api: httpx.Client) -> None:
    """1 MiB in one batch; a fetch that waits for what comes later."""
    assert api.post("/v1/topics", json={"name": "large", "partitions": 1}).status_code == 200
    value = os.urandom(1 << 20)
    place: dict[str, str | int] = {"topic": "large", "partition": 0}
    batch = bytes(encode([value]))
    assert api.post("/v1/append", params=place, content=batch).json()["base_offset"] == 0
    assert value in api.get("/v1/fetch", params={**place, "offset": 0}).content
    began = time.monotonic()
    waited = api.get("/v1/fetch", params={**place, "offset": 1, "wait_ms": 20_000})
    assert waited.status_code == 200
    assert waited.content == b""
    assert time.monotonic() - began > 19


def test_the_world_does_not_reach_the_control_api(api: httpx.Client, release: Release, token: str) -> None:
    for path in ("/v1/control/state", "/metrics", "/v1/%63ontrol/state"):
        assert (path, api.get(path).status_code) == (path, 404)
    with release.forward("service/flotilla-writer", 8080) as url:
        assert httpx.get(f"{url}/v1/control/state", headers=bearer(token), timeout=30).status_code == 200


def test_administration_goes_to_the_writer(api: httpx.Client) -> None:
    brokers = api.get("/brokers").json()["brokers"]
    assert len(brokers) == 3
    refused = api.post("/admin/broker/remove", json={"broker_host": "nobody:1"})
    assert (refused.status_code, refused.json()["status"]) == (400, "failure")


@pytest.mark.usefixtures("api")
def test_who_has_no_token_is_refused(release: Release) -> None:
    assert httpx.get(f"{release.url}/topics", timeout=30).status_code == 401


def test_the_service_serves_the_same_api(release: Release, token: str) -> None:
    """From a pod, by the Service's name: a GET with a query and with a body, 1 MiB in one batch, a long poll."""
    said = release.cluster.kubectl(
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
    assert said.split() == ["one", "two", "1048576", "waited"]


def test_tls_ends_at_the_ingress(release: Release, token: str) -> None:
    """With a host and a certificate, the same API is there by https."""
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

            def ask() -> int:
                try:
                    return get_named(address, "/topics", headers, trusted)
                except httpx.HTTPError:
                    return 0  # the controller has not heard of the certificate yet

            wait_until("an answer by https", lambda: ask() == 200)
    finally:
        release.upgrade()
        release.wait_reachable()


def get_named(address: str, path: str, headers: dict[str, str], trusted: str) -> int:
    """Ask an address by https, as if its name had been looked up."""
    with httpx.Client(verify=ssl.create_default_context(cafile=trusted), timeout=10) as client:
        request = client.build_request("GET", f"{address}{path}", headers=headers, extensions={"sni_hostname": _HOST})
        return client.send(request).status_code
