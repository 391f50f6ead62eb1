"""The door for certificates: what it says to nats-server, and what it lets through unread."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import Error as NatsError

from deploy.local import programs
from deploy.platform import ports
from libs.common.identity import generate_keys
from libs.common.identity.header import CertificatePassSigner, CertificatePassVerifier
from libs.common.mqtt import Connect, read_connect
from libs.common.tls import PeerCertificate, ServerTls, parse_mqtt_urls
from services.gateway import certificate_listeners
from services.gateway.access.addresses import TrustedProxies
from services.gateway.certificate_listeners import (
    MqttTlsListener,
    NatsTlsListener,
    add_pass_to_connect,
)
from services.gateway.connections import AddressConnections
from tests.certificates import Files

PRIVATE, PUBLIC = generate_keys()
SIGNER = CertificatePassSigner(PRIVATE)
PUBLISH = b"\x30\x05\x00\x01ahi"


def connect(user: str | None = None, password: str | None = None) -> bytes:
    """A CONNECT."""
    made = Connect(2, b"\x00\x3c", (b"SN1",), None, None).with_login(user or "", password or "")
    flags = 2 | (0x80 if user is not None else 0) | (0x40 if password is not None else 0)
    fields = b"\x00\x03SN1" + b"".join(
        len(one).to_bytes(2, "big") + one.encode() for one in (user, password) if one is not None
    )
    body = made[2:9] + bytes([flags]) + b"\x00\x3c" + fields
    return bytes([0x10, len(body)]) + body


@dataclass
class Played:
    """nats-server, played: it remembers what it hears, and answers with what it got."""

    heard: list[bytes] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while data := await reader.read(65536):
            self.heard.append(data)
            writer.write(b"+" + data)
        writer.close()
        self.ended.set()


@dataclass
class World:
    files: Files
    port: int
    nats: Played
    directory: Path

    def context(self, sn: str | None = None) -> ssl.SSLContext:
        """What a client connects with; with the certificate of a device."""
        context = ssl.create_default_context(cafile=self.files.ca_file)
        if sn is not None:
            issued = self.files.authority.issue_device_certificate(sn, 1)
            both = self.directory / f"{sn}.pem"
            both.write_text(issued.certificate + (issued.key or ""))
            context.load_cert_chain(both)
        return context

    @contextlib.asynccontextmanager
    async def client(self, sn: str | None = None) -> AsyncIterator[Any]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context(sn))
        yield reader, writer
        writer.close()


Open = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """A door in front of a server that is played."""

    @contextlib.asynccontextmanager
    async def begin(most: int = 10) -> AsyncIterator[World]:
        files, played, port = Files(tmp_path), Played(), ports.claim_random()
        async with await asyncio.start_server(played.take, "127.0.0.1", 0) as server:
            there = server.sockets[0].getsockname()[1]
            door = MqttTlsListener(
                AddressConnections(TrustedProxies(), most),
                SIGNER,
                parse_mqtt_urls(f"mqtt://127.0.0.1:{there}", ""),
                connect_timeout=5,
            )
            tls = ServerTls(str(files.certificate_file), str(files.key_file), str(files.ca_file))
            async with door.listen("127.0.0.1", port, tls):
                yield World(files, port, played, tmp_path)

    return begin


@pytest.mark.parametrize("user", [None, "", "SN1"])
async def test_a_certificate_becomes_the_login(opened: Open, user: str | None):
    """Its subject is the user, the password the gateway's word for it; all else is unread."""
    async with opened() as world, world.client("SN1") as (reader, writer):
        for part in (connect(user)[:5], connect(user)[5:] + PUBLISH):
            writer.write(part)
            await writer.drain()
        answer = await reader.readuntil(PUBLISH)
        found = read_connect(answer[1 : -len(PUBLISH)])

        assert found is not None
        assert found.user == b"SN1"
        passed = CertificatePassVerifier(PUBLIC).verify((found.password or b"").decode())
        assert passed is not None
        assert passed.subject == "SN1"
        writer.write(PUBLISH)
        assert await reader.readexactly(1 + len(PUBLISH)) == b"+" + PUBLISH


@pytest.mark.parametrize(
    ("sn", "packet"),
    [
        (None, connect("SN1", "key")),
        (None, connect()),
        ("SN1", connect("SN1", "key")),
        ("SN1", connect("SN2")),
        ("SN1", connect("SN1").replace(b"MQTT\x04", b"MQTT\x05")),
    ],
    ids=["a key", "nothing", "a key and a certificate", "another's name", "MQTT 5"],
)
async def test_other_logins_are_forwarded_unchanged(opened: Open, sn: str | None, packet: bytes):
    """nats-server and `auth` check them, as at every other port."""
    async with opened() as world, world.client(sn) as (reader, writer):
        writer.write(packet)
        assert await reader.readexactly(1 + len(packet)) == b"+" + packet


async def test_data_that_is_not_mqtt_is_not_forwarded(opened: Open):
    """The connection ends before one to nats-server begins."""
    async with opened() as world, world.client() as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        assert world.nats.writers == []


async def test_silent_clients_are_disconnected(opened: Open, monkeypatch: pytest.MonkeyPatch):
    """An incomplete CONNECT counts as silence."""
    monkeypatch.setattr(certificate_listeners, "HEAD_TIMEOUT_SECONDS", 0.05)
    async with opened() as world, world.client() as (reader, writer):
        writer.write(connect()[:5])
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_an_address_has_so_many_connections(opened: Open):
    """They count with those over HTTP; one that ends makes room."""
    async with opened(most=1) as world:
        async with world.client("SN1") as (reader, writer):
            writer.write(connect())
            await reader.readexactly(1)
            async with world.client("SN1") as (refused, _):
                with contextlib.suppress(ConnectionError):
                    assert await refused.read() == b""
        await world.nats.ended.wait()
        async with world.client("SN1") as (reader, writer):
            writer.write(connect())
            assert await reader.readexactly(1) == b"+"


async def test_one_end_gone_is_the_connection_gone(opened: Open):
    """So that a revocation, which nats-server sees to, reaches the device."""
    async with opened() as world, world.client("SN1") as (reader, writer):
        writer.write(connect())
        await reader.readexactly(1)
        world.nats.writers[0].close()
        with contextlib.suppress(ConnectionError):
            await reader.read()


async def test_a_foreign_certificate_is_rejected(opened: Open, tmp_path: Path):
    """The certificate of a server has another purpose and is rejected, too."""
    stranger = Files(tmp_path / "stranger").authority.issue_device_certificate("SN1", 1)
    strange = tmp_path / "strange.pem"
    strange.write_text(stranger.certificate + (stranger.key or ""))
    async with opened() as world:
        for both in (strange, world.files.both):
            context = world.context()
            context.load_cert_chain(both)
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", world.port, ssl=context)
                writer.write(connect())
                assert await reader.read() == b""
        assert world.nats.heard == []


CERTIFICATE = PeerCertificate("SN1", "0A")


@pytest.mark.parametrize("user", ["", "SN1", None])
def test_over_nats_a_certificate_becomes_the_login(user: str | None):
    """All other options stay as the client said them."""
    said = {"verbose": False, "lang": "python3", **({} if user is None else {"user": user})}
    line = add_pass_to_connect(
        b"CONNECT " + json.dumps(said).encode() + b"\r\n", CERTIFICATE, SIGNER
    )
    found = json.loads(line.removeprefix(b"CONNECT "))

    assert CertificatePassVerifier(PUBLIC).verify(found.pop("pass")) == CERTIFICATE
    assert found == said | {"user": "SN1"}


@pytest.mark.parametrize(
    ("certificate", "said"),
    [
        (None, {"user": "SN1", "pass": "key"}),
        (None, {}),
        (CERTIFICATE, {"user": "SN1", "pass": "key"}),
        (CERTIFICATE, {"user": "SN2"}),
        (CERTIFICATE, {"auth_token": "x"}),
        (CERTIFICATE, {"jwt": "x"}),
    ],
)
def test_over_nats_all_else_is_passed_on_as_it_is(certificate: PeerCertificate | None, said: Any):
    """nats-server and `auth` judge it."""
    line = b"CONNECT " + json.dumps(said).encode() + b"\r\n"

    assert add_pass_to_connect(line, certificate, SIGNER) == line


@pytest.mark.parametrize("line", [b"PING\r\n", b"CONNECT nothing\r\n", b"CONNECT []\r\n"])
def test_a_first_packet_other_than_connect_is_rejected(line: bytes):
    """It does not reach nats-server."""
    with pytest.raises(ValueError, match=r"CONNECT|JSON|object"):
        add_pass_to_connect(line, CERTIFICATE, SIGNER)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_client_of_nats_comes_through_to_a_server_with_tls_and_without(
    tmp_path: Path, encrypted: bool
):
    """It sees TLS at the door, and a server that proves itself to the gateway."""
    files, port, there = Files(tmp_path), ports.claim_random(), ports.claim_random()
    block = f'tls {{ cert_file: "{files.certificate_file}", key_file: "{files.key_file}" }}\n'
    config = tmp_path / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{there}"\nauthorization {{ user: u, password: p }}\n'
        + (block if encrypted else "")
    )
    url = f"{'tls' if encrypted else 'nats'}://127.0.0.1:{there}"
    door = NatsTlsListener(
        AddressConnections(TrustedProxies(), 10), SIGNER, url, str(files.ca_file), 5
    )
    trust = ssl.create_default_context(cafile=files.ca_file)
    login = {"tls": trust, "user": "u", "allow_reconnect": False}
    tls = ServerTls(str(files.certificate_file), str(files.key_file), str(files.ca_file))
    async with door.listen("127.0.0.1", port, tls), process("-c", str(config)):
        while True:
            try:
                client = await nats.connect(f"tls://127.0.0.1:{port}", password="p", **login)
            except (NatsError, OSError, TimeoutError):
                await asyncio.sleep(0.02)
            else:
                break
        heard = await client.subscribe("a")
        await client.publish("a", b"x" * 500_000)
        assert len((await heard.next_msg(5)).data) == 500_000
        await client.close()
        with pytest.raises(NatsError):
            await nats.connect(f"tls://127.0.0.1:{port}", password="no", **login)


@contextlib.asynccontextmanager
async def process(*words: str) -> AsyncIterator[None]:
    """A nats-server, for as long as it is needed."""
    silent = asyncio.subprocess.DEVNULL
    program = str(programs.find_program(programs.NATS).path)
    running = await asyncio.create_subprocess_exec(program, *words, stdout=silent, stderr=silent)
    try:
        yield
    finally:
        running.terminate()
        await running.wait()


def test_a_pass_holds_for_a_certificate():
    """It is read as it was signed."""
    certificate = PeerCertificate("SN1", "0A")

    assert CertificatePassVerifier(PUBLIC).verify(SIGNER.sign(certificate)) == certificate
