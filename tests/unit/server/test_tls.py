"""A server with a certificate accepts only TLS, and reloads the certificate without a restart."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
import uvloop
from fastapi import FastAPI

from flotilla.net import Connection, Disconnected
from flotilla_server.application import Application
from flotilla_server.server import Stop, listen, make_server, run
from flotilla_server.settings import SettingsInvalid
from flotilla_server.tls import Tls, make_client_context
from support import certificates
from support.certificates import Files


@dataclass(frozen=True)
class Given:
    """Settings."""

    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return certificates.make_authority()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    return certificates.write(tmp_path, authority)


def given(files: Files) -> Given:
    return Given(files.cert, files.key, files.ca)


@asynccontextmanager
async def serving(tls: Tls, sockets: int = 1) -> AsyncIterator[list[str]]:
    """Run a server; yield its URL."""
    app = FastAPI(docs_url=None, redoc_url=None)

    @app.get("/here")
    async def here() -> str:
        return "here"

    stop, socks = Stop(), [listen("127.0.0.1", 0) for _ in range(sockets)]
    urls = [f"https://127.0.0.1:{sock.getsockname()[1]}" for sock in socks]
    server = make_server(
        Application({}, app, connections_max=10, body_bytes_max=1000), connections_max=10, tls=tls.server
    )
    running = asyncio.create_task(run(server, socks, stop, tls=tls))
    try:
        yield urls
    finally:
        stop(0)
        assert await running == 0


async def shown(url: str, client: ssl.SSLContext) -> bytes:
    """Return the certificate that a server presents."""
    host, port = url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=client)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return found


def on_file(file: Path) -> bytes:
    first = file.read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    return ssl.PEM_cert_to_DER_cert(first)


def test_all_sockets_accept_only_tls(files: Files) -> None:
    async def body() -> None:
        tls = Tls(given(files))
        async with serving(tls, sockets=2) as urls:
            for url in urls:
                connection = await Connection.open(url, tls=tls.client)
                assert (await connection.request("GET", "/here")).status == 200
                connection.close()
                plain = await Connection.open(url.replace("https", "http"))
                with pytest.raises(Disconnected):
                    await plain.request("GET", "/here")
                with pytest.raises(Disconnected, match="certificate verify failed"):
                    await Connection.open(url)

    uvloop.run(asyncio.wait_for(body(), 20))


def test_only_tls_1_2_and_1_3_are_accepted(files: Files) -> None:
    async def body() -> None:
        tls = Tls(given(files))
        assert tls.server is not None
        assert tls.server.minimum_version == ssl.TLSVersion.TLSv1_2
        async with serving(tls) as (url,):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                client = files.client
                client.minimum_version = client.maximum_version = version
                connection = await Connection.open(url, tls=client)
                assert (await connection.request("GET", "/here")).status == 200
                connection.close()

    uvloop.run(asyncio.wait_for(body(), 20))


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_replaced_certificate_is_used_for_new_connections(files: Files, authority: trustme.CA, name: str) -> None:
    """Whether the client connects by name or by address; open connections continue."""

    async def body() -> None:
        tls = Tls(given(files))
        async with serving(tls) as (address,):
            url = address.replace("127.0.0.1", name)
            open_before = await Connection.open(url, tls=tls.client)
            old = on_file(files.cert)
            assert await shown(url, files.client) == old
            certificates.write(files.cert.parent, authority)
            new = on_file(files.cert)
            assert new != old
            while await shown(url, files.client) != new:  # noqa: ASYNC110 - only a new connection shows it
                await asyncio.sleep(0.05)
            assert (await open_before.request("GET", "/here")).status == 200
            open_before.close()

    uvloop.run(asyncio.wait_for(body(), 20))


def test_unusable_key_pair_is_logged_once_and_the_old_one_is_kept(
    files: Files, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """A rotation that was seen half-way completes when the other file is replaced."""
    caplog.set_level(logging.INFO)

    async def body() -> None:
        tls = Tls(given(files))
        async with serving(tls) as (url,):
            old = on_file(files.cert)
            other = certificates.write(files.cert.parent / "other", authority)
            certificates.put(files.cert, other.cert.read_bytes())
            for _ in range(3):
                tls.reload_changed()
            assert await shown(url, files.client) == old
            files.key.unlink()
            tls.reload_changed()
            assert await shown(url, files.client) == old
            certificates.put(files.key, other.key.read_bytes())
            tls.reload_changed()
            assert await shown(url, files.client) == on_file(other.cert)

    uvloop.run(asyncio.wait_for(body(), 20))
    texts = [record.message for record in caplog.records if record.name == "flotilla_server.tls"]
    assert len(texts) == 3, texts
    assert "the key belongs to another certificate" in texts[0]
    assert "cannot be read: No such file" in texts[1]
    assert "reloaded for new connections" in texts[2]


def test_added_ca_is_trusted_without_a_restart(files: Files, tmp_path: Path) -> None:
    other = certificates.write(tmp_path / "other", certificates.make_authority())

    async def body() -> None:
        mine, theirs = Tls(given(files)), Tls(given(other))
        async with serving(theirs) as (url,):
            with pytest.raises(Disconnected, match="certificate verify failed"):
                await Connection.open(url, tls=mine.client)
            certificates.put(files.ca, files.ca.read_bytes() + other.ca.read_bytes())
            mine.reload_changed()
            (await Connection.open(url, tls=mine.client)).close()

    uvloop.run(asyncio.wait_for(body(), 20))


def test_without_certificates_there_is_no_tls() -> None:
    tls = Tls(Given())
    assert tls.server is tls.client is None
    asyncio.run(asyncio.wait_for(tls.watch(), 5))
    assert make_client_context(None).check_hostname


def test_unusable_files_are_rejected_before_the_server_starts(
    files: Files, tmp_path: Path, authority: trustme.CA
) -> None:
    """The error names the setting, the file and the reason."""
    nothing, noise = tmp_path / "nothing", tmp_path / "noise"
    noise.write_text("no certificate")
    other = certificates.write(tmp_path / "other", authority)
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIBvTBXBgkqhkiG9w0BBQ0wSjApBgkqhkiG9w0BBQwwHAQI\n"
        b"-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    cases = [
        (Given(nothing, files.key), r"tls_cert .*nothing cannot be read: No such file"),
        (Given(files.cert, nothing), r"tls_key .*nothing cannot be read: No such file"),
        (Given(files.cert, tmp_path), r"tls_key .* cannot be read: Is a directory"),
        (Given(noise, files.key), r"tls_cert .*noise and tls_key .* are not a valid pair"),
        (Given(files.cert, other.key), r"are not a valid pair: the key belongs to another certificate"),
        (Given(files.cert, locked), r"are not a valid pair"),
        (Given(tls_ca=nothing), r"tls_ca .*nothing cannot be read: No such file"),
        (Given(tls_ca=noise), r"tls_ca .*noise is not a valid CA bundle"),
    ]
    for settings, text in cases:
        with pytest.raises(SettingsInvalid, match=text):
            Tls(settings)
