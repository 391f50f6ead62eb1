"""Listeners and clients with TLS, as the settings say: NATS, MongoDB, Redis, a service's own."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from pymongo.errors import ServerSelectionTimeoutError

from deploy.local import programs
from deploy.platform import keys, mongo_server, ports
from deploy.platform.certificates import CertificateAuthority
from deploy.platform.nats import NatsConfig, render_nats_config
from deploy.platform.nats_grants import USERS
from libs.common.bus import Bus
from libs.common.http.server import serve
from libs.common.jobs import retry
from libs.common.settings import ServiceSettings, SettingsInvalid
from libs.common.store.mongo import Mongo
from libs.common.store.redis import RedisConnectionError, check_redis, connect_redis
from libs.common.tls import ServerTls, client_context
from tests.certificates import Files
from tests.e2e.waiting import until
from tests.servers import Servers


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Another authority's."""
    return Files(tmp_path_factory.mktemp("strange"))


@contextlib.asynccontextmanager
async def process(*command: str) -> AsyncIterator[None]:
    """A server, for as long as it is needed."""
    running = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        yield
    finally:
        running.terminate()
        await running.wait()


async def accepts_connections(port: int) -> bool:
    """Return whether a server listens on a port of this machine."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        return False
    writer.close()
    return True


async def test_services_talk_to_nats_over_tls(
    files: Files, strange: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """A `tls://` server proves itself to the authority in the settings, and to no other."""
    port = ports.claim_random()
    config = tmp_path / "nats.conf"
    config.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{tmp_path}" }}\n'
        f'tls {{ cert_file: "{files.certificate_file}", key_file: "{files.key_file}" }}\n'
    )
    url = f"tls://127.0.0.1:{port}"
    async with process(str(programs.find_program(programs.NATS).path), "-c", str(config)):
        bus = await Bus.connect(url, name="test", ca_file=str(files.ca_file), stream_replicas=1)
        assert bus.is_connected
        await bus.close()
        with pytest.raises(TimeoutError, match="CERTIFICATE_VERIFY_FAILED"):
            await Bus.connect(url, name="test", ca_file=str(strange.ca_file), wait=0.5)
    assert "CERTIFICATE_VERIFY_FAILED" in caplog.text


async def test_nothing_is_sent_unencrypted_to_a_server_that_should_have_tls(
    servers: Servers, files: Files, caplog: pytest.LogCaptureFixture
):
    """A server that claims to have no TLS is refused, too, because an attacker could send this."""
    url = servers.nats_url.replace("nats://", "tls://")
    with pytest.raises(TimeoutError):
        await Bus.connect(url, name="test", ca_file=str(files.ca_file), wait=0.5)
    assert "offers no TLS" in caplog.text


async def test_services_talk_to_mongodb_over_tls(files: Files, strange: Files, tmp_path: Path):
    """As its URL says."""
    port = ports.claim_random()
    command = mongo_server.bare_server_command(
        programs.find_program(programs.MONGOD).path, tmp_path, port
    )
    tls = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", str(files.both)]
    async with process(*command, *tls):
        await until(partial(accepts_connections, port), 60)
        url = f"mongodb://127.0.0.1:{port}/?directConnection=true&tls=true&tlsCAFile="
        mongo = Mongo(f"{url}{files.ca_file}", "test")
        assert (await mongo.database.command("hello"))["ok"] == 1
        assert (await mongo.direct.command("hello"))["ok"] == 1
        await mongo.close()
        other = Mongo(f"{url}{strange.ca_file}&serverSelectionTimeoutMS=500", "test")
        with pytest.raises(ServerSelectionTimeoutError, match="CERTIFICATE_VERIFY_FAILED"):
            await other.direct.command("hello")
        await other.close()


@contextlib.asynccontextmanager
async def encrypting(url: str, files: Files) -> AsyncIterator[int]:
    """A port with TLS in front of a server that has none, as Redis of our wheel."""
    address = urlsplit(url)

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(address.hostname, address.port)
        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    tls = ServerTls(str(files.certificate_file), str(files.key_file))
    async with await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls.context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_services_talk_to_redis_over_tls(servers: Servers, files: Files, strange: Files):
    """As its URL says."""
    async with encrypting(servers.redis_url, files) as port:
        async with connect_redis(
            f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={files.ca_file}"
        ) as redis:
            await check_redis(redis)
        async with connect_redis(
            f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={strange.ca_file}"
        ) as redis:
            with pytest.raises(RedisConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
                await check_redis(redis)


async def answer(scope, receive, send) -> None:
    """An application that says hello to whoever knows how to ask."""
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{kind}.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["scheme"].encode()})


async def shown(port: int, files: Files) -> str:
    """The serial number of a listener's certificate."""
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client_context(str(files.ca_file))
    )
    serial = writer.get_extra_info("peercert")["serialNumber"]
    writer.transport.abort()
    return str(serial)


async def test_a_listener_loads_a_new_certificate_and_keeps_its_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It waits while certificate and key do not belong together."""
    monkeypatch.setattr("libs.common.tls.FILE_CHECK_SECONDS", 0.01)
    monkeypatch.setattr("libs.common.http.server._freeze_permanent_objects", lambda _: None)
    files, port = Files(tmp_path), ports.claim_random()
    settings = ServiceSettings(
        port=port, tls_certificate=str(files.certificate_file), tls_key=str(files.key_file)
    )
    serving = asyncio.create_task(serve(answer, settings))
    async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:
        trust = client_context(str(files.ca_file))

        async def get() -> str:
            async with session.get("/", ssl=trust) as reply:
                return await reply.text()

        while True:
            try:
                assert await get() == "https"
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.01)
            else:
                break
        before, key = await shown(port, files), files.key_file.read_text()
        [connection] = await idle(session)
        files.issue_server_certificate()
        new = files.key_file.read_text()
        files.key_file.write_text(key)  # as if the certificate were there first
        await asyncio.sleep(0.05)
        assert await shown(port, files) == before
        files.key_file.write_text(new)
        while await shown(port, files) == before:
            await asyncio.sleep(0.01)
        assert await get() == "https"
        assert await idle(session) == [connection]
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def idle(session: aiohttp.ClientSession) -> list[object]:
    """The connections that a client keeps."""
    assert session.connector is not None
    return [one for kept in session.connector._conns.values() for one, _ in kept]


@pytest.mark.parametrize("missing", ["tls_certificate", "tls_key"])
def test_a_certificate_without_its_key_ends_the_process(files: Files, missing: str):
    """The line names the variables."""
    given = {
        "tls_certificate": str(files.certificate_file),
        "tls_key": str(files.key_file),
        missing: "",
    }
    with pytest.raises(SettingsInvalid, match=r"THINGWAY_TLS_CERTIFICATE and THINGWAY_TLS_KEY"):
        ServerTls.from_settings(ServiceSettings(**given))


def test_files_that_make_no_certificate_end_the_process(files: Files, strange: Files):
    """The line names the setting and the file at fault."""
    good, key, absent = files.certificate_file, files.key_file, files.directory / "no"
    for given, fault in (
        (
            (good, strange.key_file, ""),
            f"KEY: {strange.key_file} is not the key, without a password, of",
        ),
        ((good, absent, ""), f"KEY: {absent}: No such file"),
        ((absent, key, ""), f"CERTIFICATE: {absent}: No such file"),
        ((key, key, ""), f"CERTIFICATE: {key} has no certificate"),
        ((good, key, absent), f"DEVICE_CA_FILE: {absent}: No such file"),
        ((good, key, key), f"DEVICE_CA_FILE: {key} has no certificate"),
    ):
        settings = ServiceSettings(tls_certificate=str(given[0]), tls_key=str(given[1]))
        with pytest.raises(SettingsInvalid, match=f"^THINGWAY_(TLS_)?{fault}"):
            ServerTls.from_settings(settings, str(given[2]))


async def refused(port: int, ciphers: str, files: Files) -> bool:
    """Return whether a listener refuses TLS 1.2 with these cipher suites."""
    trust = ssl.create_default_context(cafile=files.ca_file)
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    trust.set_ciphers(ciphers)
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    except (ssl.SSLError, ConnectionResetError):  # asyncio resets after a failed handshake
        return True
    writer.close()
    return False


@pytest.mark.parametrize("server", ["gateway", "nats-server"])
async def test_listeners_refuse_old_cipher_suites(server: str, files: Files, tmp_path: Path):
    """They have CBC, or no forward secrecy; the others are accepted with TLS 1.2."""
    async with contextlib.AsyncExitStack() as stack:
        if server == "gateway":
            tls = ServerTls(str(files.certificate_file), str(files.key_file)).context
            listener = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=tls)
            port = (await stack.enter_async_context(listener)).sockets[0].getsockname()[1]
        else:
            port, config = ports.claim_random(), tmp_path / "nats.conf"
            given = NatsConfig(
                passwords=dict.fromkeys(USERS, "secret"),
                callout_issuer=keys.account_public_key(keys.new_account_seed()),
                store_dir=tmp_path / "store",
                port=ports.claim_random(),
                mqtt_port=port,
                tls=files.tls_files,
            )
            config.write_text(render_nats_config(given))
            program = str(programs.find_program(programs.NATS).path)
            await stack.enter_async_context(process(program, "-c", str(config)))
            await retry(lambda: asyncio.open_connection("127.0.0.1", port), OSError)
        for ciphers in ("ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA", "AES128-GCM-SHA256"):
            assert await refused(port, ciphers, files), ciphers
        for ciphers in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"):
            assert not await refused(port, ciphers, files), ciphers


def plain_authority() -> CertificateAuthority:
    """Return an authority as plain `openssl req -x509` creates it, without a key usage."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "plain")])
    public, days = key.public_key(), timedelta(days=1)
    serial = x509.random_serial_number()
    plain = (
        x509.CertificateBuilder(name, name, public, serial, now - days, now + days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .sign(key, SHA256())
    )
    pem = Encoding.PEM
    secret = key.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption())
    return CertificateAuthority((secret + plain.public_bytes(pem)).decode())


async def test_an_authority_without_optional_extensions_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Python 3.13 rejects it unless the client says otherwise."""

    def strict(cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cafile=cafile, cadata=cadata)
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    files = Files(tmp_path, authority=plain_authority())
    tls = ServerTls(str(files.certificate_file), str(files.key_file)).context
    async with await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls
    ) as listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(ssl.SSLCertVerificationError, match="key usage"):
            await asyncio.open_connection("127.0.0.1", port, ssl=strict(str(files.ca_file)))
        trust = client_context(str(files.ca_file))
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.close()
