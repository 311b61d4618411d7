"""Retries: a repeated batch is stored once, and out-of-sequence batches are rejected with a code."""

from collections.abc import Callable

import httpx

from flotilla import Client
from flotilla.records import encode
from support.behaviour.records import read

_ID = bytes.fromhex("ab" * 16)
_BATCH = {"content-type": "application/vnd.flotilla.batch"}


def append(
    http: httpx.Client, topic: str, *values: bytes, sequence: int, epoch: int = 0
) -> tuple[int, str, int | None]:
    """Append a batch; return the status, a code or "ok", and its offset."""
    batch = encode(list(values), producer_id=_ID, producer_epoch=epoch, base_sequence=sequence)
    target = f"/v1/append?topic={topic}&partition=0"
    response = http.post(target, content=bytes(batch), headers=_BATCH)
    found = response.json()
    return response.status_code, found.get("code", "ok"), found.get("base_offset")


def repeated_batch_is_stored_once(url: str, name: str) -> None:
    """The response is the same as the first, also after other batches."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        client.topics.create(name, partitions=1)
        assert append(http, name, b"a", b"b", sequence=0) == (200, "ok", 0)
        assert append(http, name, b"c", sequence=2) == (200, "ok", 2)
        assert append(http, name, b"a", b"b", sequence=0) == (200, "ok", 0)
        assert append(http, name, b"c", sequence=2) == (200, "ok", 2)
        client.topics.delete_records(name, {0: "latest"})
        assert append(http, name, b"c", sequence=2) == (200, "ok", 2), "also if it was deleted since"
        assert append(http, name, b"d", sequence=3) == (200, "ok", 3)
        assert [record.value for record in read(client, name)] == [b"d"]


def out_of_sequence_batch_is_rejected(url: str, name: str) -> None:
    """The code gives the reason, and nothing is stored."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        client.topics.create(name, partitions=1)
        assert append(http, name, b"a", sequence=1) == (409, "unknown_producer", None)
        assert append(http, name, b"a", b"b", sequence=0, epoch=1) == (200, "ok", 0)
        assert append(http, name, b"c", sequence=5, epoch=1) == (409, "sequence_gap", None)
        assert append(http, name, b"x", b"y", sequence=0, epoch=1) == (409, "sequence_reused", None)
        assert append(http, name, b"b", sequence=1, epoch=1) == (409, "sequence_overlap", None)
        assert append(http, name, b"a", sequence=0, epoch=0) == (409, "epoch_stale", None)
        assert append(http, name, b"again", sequence=0, epoch=2) == (200, "ok", 2)
        assert [record.value for record in read(client, name)] == [b"a", b"b", b"again"]


def damaged_batch_is_rejected(url: str, name: str) -> None:
    """By its checksum."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        client.topics.create(name, partitions=1)
        batch = encode([b"a value that is long enough"])
        batch[-20] ^= 1
        response = http.post(f"/v1/append?topic={name}&partition=0", content=bytes(batch), headers=_BATCH)
        assert (response.status_code, response.json()["code"]) == (400, "bad_batch")
        assert read(client, name) == []


def records_as_json_equal_the_sent_records(url: str, name: str) -> None:
    """For clients that cannot decode batches."""
    with Client(url) as client, httpx.Client(base_url=url, timeout=30) as http:
        client.topics.create(name, partitions=1)
        sent = {"records": [{"value": "tea", "key": "k"}, {"value_base64": "/w=="}]}
        answer = http.post(f"/v1/append?topic={name}&partition=0", json=sent)
        assert answer.json()["base_offset"] == 0
        target = f"/v1/fetch?topic={name}&partition=0&offset=1"
        found = http.get(target, headers={"accept": "application/json"}).json()
        assert {key: found[key] for key in ("next_offset", "first_offset", "end_offset")} == {
            "next_offset": 2, "first_offset": 0, "end_offset": 2,
        }  # fmt: skip
        assert [record["value_base64"] for record in found["records"]] == ["/w=="]
        assert [record.key for record in read(client, name)] == [b"k", None]
        missing = http.get(f"/v1/fetch?topic={name}&partition=1&offset=0")
        assert (missing.status_code, missing.json()["code"]) == (404, "unknown_partition")


BODIES: list[Callable[[str, str], None]] = [
    repeated_batch_is_stored_once,
    out_of_sequence_batch_is_rejected,
    damaged_batch_is_rejected,
    records_as_json_equal_the_sent_records,
]
