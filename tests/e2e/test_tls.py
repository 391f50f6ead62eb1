"""`thingway up --tls`: clients that verify certificates, and devices that show one."""

import asyncio
import contextlib
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

import aiohttp
import aiomqtt
import nats
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError

from deploy.platform.certificates import CertificateAuthority, create_authority_pem
from tests.e2e.callers import Application
from tests.e2e.devices import Device
from tests.e2e.journey import browsing, travel
from tests.e2e.listening import listening
from tests.e2e.platform import MODEL, PRODUCT, Platform
from tests.e2e.waiting import PATIENCE, until

PACE = 0.02
"""Seconds between two reports: a device may send a thousand messages per second."""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tls")]


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """Start a platform that serves only TLS."""
    root = Path(tempfile.mkdtemp(prefix="thingway-tls-"))
    started = Platform(root / "data", tls=True)
    started.start()
    yield started
    started.stop()
    rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
async def application(platform: Platform) -> AsyncIterator[Application]:
    """Return its first application."""
    client = platform.application()
    await client.data("PUT", f"/products/{MODEL}", PRODUCT)
    yield client
    await client.close()


@pytest.fixture
async def device(application: Application) -> Device:
    """Return a new device."""
    return await application.add_device()


class Certificate:
    """A certificate as `thingway device certificate` issues it."""

    def __init__(self, platform: Platform, directory: Path, sn: str, *more: str) -> None:
        self.platform, self.sn, self.directory = platform, sn, directory
        made = platform.command("device", "certificate", sn, "--out", str(directory), *more)
        self.serial, self.file, self.key = made["serial"], made["certificate"], made["key"]

    def context(self, key: str | None = None) -> ssl.SSLContext:
        """Return the SSL context of its device."""
        trust = self.platform.trust
        assert trust is not None
        trust.load_cert_chain(self.file, key or self.key)
        return trust

    def mqtt(self, user: str | None = None, **options: Any) -> aiomqtt.Client:
        """Return an MQTT connection to the port for certificates."""
        options = {"tls_context": None, **options}
        options["tls_context"] = options["tls_context"] or self.context()
        door = ("127.0.0.1", self.platform.certificate_port)
        return aiomqtt.Client(*door, username=user, identifier=self.sn, timeout=5, **options)

    @contextlib.asynccontextmanager
    async def nats(self) -> AsyncIterator[NatsClient]:
        """Open a connection over plain NATS."""
        client = await nats.connect(
            f"tls://127.0.0.1:{self.platform.certificate_nats_port}",
            tls=self.context(),
            inbox_prefix=f"_INBOX.sn.{self.sn}".encode(),
            allow_reconnect=False,
        )
        try:
            yield client
        finally:
            await client.close()

    async def http(self, sn: str, temperature: float) -> int:
        """Send a report over HTTPS and return the status."""
        connector = aiohttp.TCPConnector(ssl=self.context())
        body = {"properties": {"temperature": temperature}}
        async with (
            aiohttp.ClientSession(self.platform.base_url, connector=connector) as session,
            session.post(f"/ingest/v1/{sn}/report", json=body) as answer,
        ):
            return answer.status

    def revoke(self) -> None:
        """End it."""
        self.platform.command("device", "revoke-certificate", self.sn, self.serial)


async def report(client: aiomqtt.Client, sn: str, value: float, what: str = "temperature") -> None:
    """Report; return when it is acknowledged."""
    body = json.dumps({"properties": {what: value}})
    await client.publish(f"thing/{sn}/up/report", body, qos=1)


def over_websocket(platform: Platform, device: Device) -> aiomqtt.Client:
    """MQTT over WebSocket."""
    return aiomqtt.Client(
        "127.0.0.1",
        platform.websocket_port,
        username=device.sn,
        password=device.key,
        identifier=device.sn,
        transport="websockets",
        websocket_path="/mqtt",
        tls_context=platform.trust,
        timeout=5,
    )


async def test_the_whole_journey(platform: Platform) -> None:
    """A console over HTTPS and WebSocket and a device over MQTT use TLS."""
    async with browsing(platform) as browser:
        await travel(browser)


async def test_every_protocol_is_encrypted(
    platform: Platform, application: Application, device: Device
) -> None:
    """A device reports over NATS, HTTP and WebSocket; its application listens."""
    ready = platform.ready
    assert ready.base_url == f"https://127.0.0.1:{platform.port}"
    assert ready.mqtt_url == f"mqtts://127.0.0.1:{platform.mqtt_port}"
    assert ready.nats_url.startswith("tls://")
    assert ready.websocket_url == f"wss://127.0.0.1:{platform.websocket_port}/mqtt"
    assert ready.certificate_url == f"mqtts://127.0.0.1:{platform.certificate_port}"
    async with listening(platform, application) as events:
        async with device.nats() as client:
            await client.request(
                f"thing.{device.sn}.up.report", b'{"properties": {"temperature": 1.5}}', 5
            )
        assert (await device.http("POST", "report", {"properties": {"temperature": 2.5}}))[0] == 202
        async with over_websocket(platform, device) as client:
            await report(client, device.sn, 3.5)
        for value in (1.5, 2.5, 3.5):
            await device.stored({"temperature": value})
            await events.wait(
                f"event.default.device.{device.id}.reported",
                lambda body, wanted=value: body["properties"] == {"temperature": wanted},
            )


async def test_clients_without_tls_or_with_another_authority_are_rejected(
    platform: Platform, device: Device, tmp_path: Path
) -> None:
    """This holds for every port."""
    other = tmp_path / "other.pem"
    other.write_text(CertificateAuthority(create_authority_pem("Thingway servers")).certificate)
    trust = ssl.create_default_context(cafile=other)
    mqtt = {"username": device.sn, "password": device.key, "timeout": 5}
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        async with aiohttp.ClientSession() as session:
            await session.get(f"{platform.base_url}/healthz", ssl=trust)
    with pytest.raises(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session:
            await session.get(f"http://127.0.0.1:{platform.port}/healthz")
    for port in (platform.mqtt_port, platform.certificate_port):
        for context in (trust, None):
            with pytest.raises((aiomqtt.MqttError, ssl.SSLError)):
                async with aiomqtt.Client("127.0.0.1", port, tls_context=context, **mqtt):
                    pass
    with pytest.raises((aiomqtt.MqttError, ssl.SSLError)):
        async with aiomqtt.Client(
            "127.0.0.1", platform.websocket_port, tls_context=trust, transport="websockets", **mqtt
        ):
            pass
    with pytest.raises(ssl.SSLError):
        await nats.connect(
            f"tls://127.0.0.1:{platform.nats_port}",
            tls=trust,
            user=device.sn,
            password=device.key,
            allow_reconnect=False,
        )


async def read_serial(port: int, trust: ssl.SSLContext | None, *, nats_first: bool = False) -> str:
    """Return the serial number of the certificate at a port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if nats_first:
        await reader.readline()
    await writer.start_tls(trust, server_hostname="127.0.0.1")
    certificate = writer.get_extra_info("peercert")
    writer.transport.abort()
    return str(certificate["serialNumber"])


async def read_serials(platform: Platform) -> list[str]:
    """Return the serial numbers at all ports."""
    return [
        await read_serial(platform.port, platform.trust),
        await read_serial(platform.mqtt_port, platform.trust),
        await read_serial(platform.websocket_port, platform.trust),
        await read_serial(platform.certificate_port, platform.trust),
        await read_serial(platform.nats_port, platform.trust, nats_first=True),
        await read_serial(platform.certificate_nats_port, platform.trust, nats_first=True),
    ]


@dataclass
class Flow:
    """Continuous reports of one device, with those that were acknowledged."""

    device: Device
    acknowledged: list[int] = field(default_factory=list)
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def over_mqtt(self, connect: Callable[[], aiomqtt.Client]) -> None:
        """Report as a device does: reconnect, and send unacknowledged reports again."""
        while not self.enough.is_set():
            with contextlib.suppress(aiomqtt.MqttError):
                async with connect() as client:
                    while not self.enough.is_set():
                        value = len(self.acknowledged)
                        await report(client, self.device.sn, value, "counter")
                        self.acknowledged.append(value)
                        await asyncio.sleep(PACE)

    async def over_https(self, platform: Platform) -> None:
        """Report over one connection that stays open."""
        connected = 0

        async def count(*_: object) -> None:
            nonlocal connected
            connected += 1

        tracing = aiohttp.TraceConfig()
        tracing.on_connection_create_end.append(count)
        auth = aiohttp.encode_basic_auth(self.device.sn, self.device.key)
        headers, path = {"Authorization": auth}, f"/ingest/v1/{self.device.sn}/report"
        async with platform.session(headers=headers, trace_configs=[tracing]) as session:
            while not self.enough.is_set():
                value = len(self.acknowledged)
                async with session.post(path, json={"properties": {"counter": value}}) as answer:
                    assert answer.status == 202
                self.acknowledged.append(value)
                await asyncio.sleep(PACE)
        assert connected == 1

    async def goes_on(self) -> None:
        """Wait for twenty more acknowledgements."""
        wanted = len(self.acknowledged) + 20

        async def reached() -> bool:
            return len(self.acknowledged) >= wanted

        await until(reached)


async def test_a_certificate_is_exchanged_while_reports_flow(
    platform: Platform, application: Application, tmp_path: Path
) -> None:
    """HTTPS stays connected, nats-server's devices reconnect; no report is lost.

    nats-server closes connections that the callout accepted when it reloads its configuration.
    """
    flows = [Flow(await application.add_device()) for _ in range(4)]
    plain, browser, https, shows = flows
    certificate = Certificate(platform, tmp_path, shows.device.sn)
    before = await read_serials(platform)
    assert len(set(before)) == 1
    async with asyncio.TaskGroup() as flowing:
        flowing.create_task(plain.over_mqtt(lambda: plain.device.mqtt().client))
        flowing.create_task(browser.over_mqtt(lambda: over_websocket(platform, browser.device)))
        flowing.create_task(https.over_https(platform))
        flowing.create_task(shows.over_mqtt(certificate.mqtt))
        await asyncio.gather(*(flow.goes_on() for flow in flows))
        (platform.directory / "tls" / "server.pem").unlink()

        async def exchanged() -> bool:
            now = await read_serials(platform)
            return len(set(now)) == 1 and now != before

        await until(exchanged)
        await asyncio.gather(*(flow.goes_on() for flow in flows))
        for flow in flows:
            flow.enough.set()
    for flow in flows:
        await flow.device.stored({"counter": flow.acknowledged[-1]})
        history = {one["properties"]["counter"] for one in await flow.device.history()}
        assert history >= set(flow.acknowledged)


async def test_a_device_logs_in_with_its_certificate(
    platform: Platform, device: Device, tmp_path: Path
) -> None:
    """Over MQTT without a user name or with its SN, over HTTPS, and over NATS."""
    certificate = Certificate(platform, tmp_path, device.sn)
    for value, user in ((1.5, None), (2.5, device.sn)):
        async with certificate.mqtt(user) as client:
            await report(client, device.sn, value)
        await device.stored({"temperature": value})
    assert await certificate.http(device.sn, 3.5) == 202
    await device.stored({"temperature": 3.5})
    async with certificate.nats() as client:
        await client.request(
            f"thing.{device.sn}.up.report", b'{"properties": {"temperature": 4.5}}', 5
        )
    await device.stored({"temperature": 4.5})
    mode = await asyncio.to_thread(lambda: Path(certificate.key).stat().st_mode)
    assert mode & 0o777 == 0o600


async def test_a_key_is_accepted_on_the_port_for_certificates(
    platform: Platform, device: Device
) -> None:
    """A client without a certificate logs in as on the other ports."""
    door = ("127.0.0.1", platform.certificate_port)
    login = {"username": device.sn, "password": device.key, "tls_context": platform.trust}
    async with aiomqtt.Client(*door, identifier=device.sn, **login) as client:
        await report(client, device.sn, 1.5)
    await device.stored({"temperature": 1.5})


async def test_the_device_keeps_the_key_of_a_request(
    platform: Platform, device: Device, tmp_path: Path
) -> None:
    """With a CSR the operator sees no private key."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    pem = serialization.Encoding.PEM
    (tmp_path / "csr").write_bytes(request.sign(key, hashes.SHA256()).public_bytes(pem))
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "own.key").write_bytes(key.private_bytes(pem, form, secret))
    certificate = Certificate(platform, tmp_path, device.sn, "--csr", str(tmp_path / "csr"))

    assert certificate.key is None
    own = certificate.context(str(tmp_path / "own.key"))
    async with certificate.mqtt(tls_context=own) as client:
        await report(client, device.sn, 1.5)
    await device.stored({"temperature": 1.5})


async def test_a_certificate_is_valid_for_one_device_only(
    platform: Platform, application: Application, device: Device, tmp_path: Path
) -> None:
    """It allows neither the name nor the topics of another device."""
    victim = await application.add_device()
    certificate = Certificate(platform, tmp_path, device.sn)
    with pytest.raises(aiomqtt.MqttError):
        async with certificate.mqtt(victim.sn):
            pass
    async with certificate.mqtt() as client:
        refused = await client.subscribe(f"thing/{victim.sn}/down/#", qos=1)
        assert [code.value for code in refused] == [0x80]
        await report(client, victim.sn, 66.5)
        await report(client, device.sn, 1.5)
    assert await certificate.http(victim.sn, 77.5) == 403
    await device.stored({"temperature": 1.5})
    assert await victim.history() == []


async def test_a_revoked_certificate_logs_nobody_in(
    platform: Platform, device: Device, tmp_path: Path
) -> None:
    """Its connections end; the key and other certificates stay valid."""
    certificate = Certificate(platform, tmp_path, device.sn)
    (tmp_path / "other").mkdir()
    other = Certificate(platform, tmp_path / "other", device.sn)
    listed = platform.command("device", "certificates", device.sn)["certificates"]
    assert [entry["serial"] for entry in listed] == [other.serial, certificate.serial]
    async with device.mqtt() as by_key:
        client = certificate.mqtt()
        await client.__aenter__()
        await report(client, device.sn, 1.5)
        certificate.revoke()
        with contextlib.suppress(aiomqtt.MqttError):
            async with asyncio.timeout(PATIENCE):
                async for _ in client.messages:
                    pass
        with pytest.raises(aiomqtt.MqttError):
            await report(client, device.sn, 2.5)
        with contextlib.suppress(aiomqtt.MqttError):
            await client.__aexit__(None, None, None)
        with pytest.raises(aiomqtt.MqttError):
            async with certificate.mqtt():
                pass
        with pytest.raises(NatsError):
            async with certificate.nats():
                pass
        assert await certificate.http(device.sn, 3.5) == 401
        await by_key.report({"temperature": 4.5})
        assert await other.http(device.sn, 5.5) == 202
    await device.stored({"temperature": 5.5})


async def test_certificates_end_with_the_credentials_of_their_device(
    application: Application, platform: Platform, device: Device, tmp_path: Path
) -> None:
    """A device that is registered again with the SN is another device."""
    certificate = Certificate(platform, tmp_path, device.sn)
    assert await certificate.http(device.sn, 1.5) == 202
    await application.data("DELETE", f"/devices/{device.id}")
    assert await certificate.http(device.sn, 2.5) == 401
    again = await application.add_device(snDevEUI=device.sn)
    assert await certificate.http(again.sn, 3.5) == 401


async def test_an_authority_of_somebody_else_issues_nothing_here(
    platform: Platform, device: Device, tmp_path: Path
) -> None:
    """TLS itself refuses a certificate that is not of the devices' authority."""
    made = CertificateAuthority(create_authority_pem("Thingway devices")).issue_device_certificate(
        device.sn, 1
    )
    (tmp_path / "own.pem").write_text(made.certificate + (made.key or ""))
    trust = platform.trust
    assert trust is not None
    trust.load_cert_chain(tmp_path / "own.pem")
    with pytest.raises((aiomqtt.MqttError, ssl.SSLError)):
        async with aiomqtt.Client(
            "127.0.0.1", platform.certificate_port, identifier=device.sn, tls_context=trust
        ):
            pass
