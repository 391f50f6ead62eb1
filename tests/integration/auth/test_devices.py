"""Device keys: issued, rotated, revoked; at HTTP's door and at the bus's."""

import asyncio
from functools import partial

import aiomqtt
import nats
import nats.errors
import pytest

from deploy.platform.nats_grants import RELAY_USER
from libs.common.clock import now_ms
from libs.common.contracts.auth import (
    ApplicationRef,
    ApplicationSecret,
    DeviceCertificate,
    DeviceCertificateRef,
    DeviceCertificates,
    DeviceCredentials,
    DeviceIdentity,
    DeviceLogin,
    DeviceRef,
    Done,
    FirstDeviceKey,
    IssueFirstKey,
    LastRefusedLogin,
    ListDeviceCertificates,
)
from libs.common.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from libs.common.identity import Principal, PrincipalKind
from libs.common.identity.device_keys import (
    MAX_DEVICES_PER_WRITE,
    MAX_WAITING_PER_TENANT,
    RETENTION_SECONDS,
    DeviceKeyCopy,
    DeviceKeyReader,
    RejectedLogins,
)
from libs.common.tls import PeerCertificate
from services.auth.device_credentials import MAX_CERTIFICATES
from tests.outside import relaying

DEVICE = DeviceRef("Ab12", 7, "t1")
PRINCIPAL = Principal(kind=PrincipalKind.DEVICE, tenant="t1", subject="Ab12")


async def issue(auth, device: DeviceRef = DEVICE) -> str:
    return (await auth.call("issue_device_credentials", device, DeviceCredentials)).key


async def test_the_gateway_proves_a_device_by_its_key(auth):
    """First by rpc, then from Redis alone; the SN in any case, wrong keys and SNs refused."""
    key = await issue(auth)
    reader = DeviceKeyReader(auth.redis, auth.rpc)
    deaf = DeviceKeyReader(auth.redis, None)

    assert await reader.authenticate("aB12", key) == PRINCIPAL
    assert await deaf.authenticate("AB12", key) == PRINCIPAL
    assert await deaf.authenticate("Ab12", "wrong") is None
    assert await reader.authenticate("nobody", key) is None


async def test_check_device_answers_and_refuses(auth):
    """The identity, or 401."""
    key = await issue(auth)

    known = await auth.call("check_device", DeviceLogin("ab12", key), DeviceIdentity)

    assert known == DeviceIdentity("Ab12", 7, "t1")
    with pytest.raises(Unauthenticated):
        await auth.call("check_device", DeviceLogin("ab12", "wrong"), DeviceIdentity)


async def certify(auth, serial: str, sn: str = "Ab12", *, lasts: int = 60_000) -> None:
    certificate = DeviceCertificate(sn, serial, now_ms() + lasts)
    await auth.call("add_device_certificate", certificate, Done)


async def serials(auth) -> list[str]:
    wanted = ListDeviceCertificates("Ab12")
    found = await auth.call("list_device_certificates", wanted, DeviceCertificates)
    return [certificate.serial for certificate in found.certificates]


async def test_the_gateway_proves_a_device_by_its_certificate(auth):
    """First by rpc, then from Redis alone; under the very SN, with a number that is known."""
    await issue(auth)
    await certify(auth, "0A")
    reader = DeviceKeyReader(auth.redis, auth.rpc)
    deaf = DeviceKeyReader(auth.redis, None)

    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0A")) == PRINCIPAL
    assert await deaf.authenticate_certificate(PeerCertificate("Ab12", "0A")) == PRINCIPAL
    assert await deaf.authenticate_certificate(PeerCertificate("AB12", "0A")) is None
    assert await deaf.authenticate_certificate(PeerCertificate("Ab12", "0B")) is None
    assert await reader.authenticate_certificate(PeerCertificate("nobody", "0A")) is None


async def test_a_certificate_counts_at_once_and_ends_at_once(auth):
    """Though Redis had the copy; the key and other certificates stay."""
    key = await issue(auth)
    reader = DeviceKeyReader(auth.redis, auth.rpc)
    for serial in ("0A", "0B"):
        assert await reader.authenticate_certificate(PeerCertificate("Ab12", serial)) is None
        await certify(auth, serial)
        assert await reader.authenticate_certificate(PeerCertificate("Ab12", serial)) == PRINCIPAL
    assert await serials(auth) == ["0B", "0A"]

    ended = DeviceCertificateRef("Ab12", "0A")
    await auth.call("revoke_device_certificate", ended, Done)

    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0A")) is None
    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0B")) == PRINCIPAL
    assert await reader.authenticate("Ab12", key) == PRINCIPAL
    with pytest.raises(NotFound):
        await auth.call("revoke_device_certificate", ended, Done)


async def test_a_certificate_outlives_a_new_key_and_ends_with_the_credentials(auth):
    """A device registered later with the same SN is another device."""
    await issue(auth)
    await certify(auth, "0A")
    reader = DeviceKeyReader(auth.redis, auth.rpc)

    await issue(auth)
    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0A")) == PRINCIPAL
    await auth.call("revoke_device_credentials", DEVICE, Done)
    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0A")) is None
    await issue(auth)
    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0A")) is None


async def test_certificates_are_bounded_and_need_a_device(auth):
    """Expired ones are forgotten; the SN is the very one."""
    await issue(auth)
    for sn in ("AB12", "nobody"):
        with pytest.raises(NotFound):
            await certify(auth, "0A", sn)
    for number in range(3):
        await certify(auth, f"E{number}", lasts=-1)
    for number in range(MAX_CERTIFICATES):
        await certify(auth, f"{number:02X}")
    with pytest.raises(Conflict, match="revoke one"):
        await certify(auth, "FF")
    assert len(await serials(auth)) == MAX_CERTIFICATES


async def test_a_new_key_kills_the_old_one_and_revoking_kills_both(auth):
    """At once, though Redis had the copy."""
    reader = DeviceKeyReader(auth.redis, auth.rpc)
    old = await issue(auth)
    assert await reader.authenticate("Ab12", old)

    new = await issue(auth)
    assert await reader.authenticate("Ab12", old) is None
    assert await reader.authenticate("Ab12", new)

    await auth.call("revoke_device_credentials", DEVICE, Done)
    await auth.call("revoke_device_credentials", DEVICE, Done)
    assert await reader.authenticate("Ab12", new) is None


async def test_a_first_key_replaces_none(auth):
    """It opens the SN; asked again, in any case of the SN, there is none, and it stays."""
    asked = "issue_first_device_credentials"
    first = await auth.call(asked, DEVICE, FirstDeviceKey)
    again = [
        await auth.call(asked, DeviceRef(sn, 7, "t1"), FirstDeviceKey) for sn in ("Ab12", "AB12")
    ]

    assert again == [FirstDeviceKey(None)] * 2
    assert await DeviceKeyReader(auth.redis, auth.rpc).authenticate("Ab12", first.key)


WANTED = IssueFirstKey("Ab12", 7, "t1", repeatable=True)
ISSUE_FIRST = "issue_first_device_credentials"


async def test_a_first_key_can_be_shown_again_for_ten_minutes(auth):
    """Redis has it encrypted, for this very device; without the wish it is shown once."""
    first = await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey)

    assert first.key
    assert await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey) == first
    assert 0 < await auth.redis.ttl("tw:first-key:AB12") <= 600
    assert first.key.encode() not in await auth.redis.get("tw:first-key:AB12")
    for other in (DEVICE, IssueFirstKey("Ab12", 8, "t1", repeatable=True)):
        assert await auth.call(ISSUE_FIRST, other, FirstDeviceKey) == FirstDeviceKey(None)


async def test_the_first_log_in_of_a_device_ends_the_showing_of_its_key(auth):
    """Also behind a refused one; from the second on the gateway has its copy."""
    reader = DeviceKeyReader(auth.redis, auth.rpc)
    first = await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey)

    assert await reader.authenticate("Ab12", "wrong") is None
    assert await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey) == first
    assert await reader.authenticate("Ab12", first.key)
    assert await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey) == FirstDeviceKey(None)
    assert await reader.authenticate("Ab12", first.key)
    assert await auth.redis.exists("tw:device:AB12")


@pytest.mark.parametrize("operation", ["issue_device_credentials", "revoke_device_credentials"])
async def test_a_first_key_that_ended_is_not_shown(auth, operation):
    """A new key takes its place, or none."""
    first = await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey)
    answer = DeviceCredentials if operation.startswith("issue") else Done

    await auth.call(operation, DEVICE, answer)

    assert not await auth.redis.exists("tw:first-key:AB12")
    assert await auth.call(ISSUE_FIRST, WANTED, FirstDeviceKey) != first


async def test_a_late_revocation_leaves_the_next_device_of_the_sn_alone(auth):
    """Only the device that is named loses its key."""
    key = await issue(auth, DeviceRef("Ab12", 8, "t1"))

    await auth.call("revoke_device_credentials", DEVICE, Done)

    assert await DeviceKeyReader(auth.redis, auth.rpc).authenticate("Ab12", key)


async def test_no_tenant_takes_another_tenants_sn(auth):
    """409, and the first key goes on."""
    key = await issue(auth)

    with pytest.raises(Conflict, match="sn"):
        await issue(auth, DeviceRef("AB12", 9, "t2"))

    assert await DeviceKeyReader(auth.redis, auth.rpc).authenticate("Ab12", key)


@pytest.mark.parametrize("sn", ["", "a.b", "a b", "thing/+", ">", "x" * 129])
async def test_an_sn_that_cannot_be_a_subject_gets_no_key(auth, sn):
    """400 names the SN."""
    with pytest.raises(InvalidInput, match="sn"):
        await issue(auth, DeviceRef(sn, 1, "t1"))


async def test_no_log_in_brings_a_revoked_key_back(auth):
    """Log-ins that restore the copy race with revocation; afterwards none succeeds."""
    reader = DeviceKeyReader(auth.redis, auth.rpc)
    for _ in range(10):
        key = await issue(auth)
        logins = [asyncio.ensure_future(reader.authenticate("Ab12", key)) for _ in range(20)]
        await auth.call("revoke_device_credentials", DEVICE, Done)
        await asyncio.gather(*logins)

        assert await reader.authenticate("Ab12", key) is None


async def connect(auth, user: str, password: str, inbox: str):
    return await nats.connect(
        auth.door.url,
        user=user,
        password=password,
        inbox_prefix=inbox,
        allow_reconnect=False,
        connect_timeout=60,  # the server's own bound is what counts
    )


async def test_a_device_logs_in_over_mqtt_and_nats(auth):
    """SN and key open both doors, and only its own subjects."""
    key = await issue(auth)

    async with aiomqtt.Client(
        "127.0.0.1", auth.door.mqtt_port, username="Ab12", password=key
    ) as device:
        codes = await device.subscribe([("thing/Ab12/down/#", 0), ("thing/other/down/#", 0)])
    async with relaying(auth.door.url, f"secret-{RELAY_USER}"):
        client = await connect(auth, "Ab12", key, "_INBOX.sn.Ab12")
        ack = await client.jetstream().publish("thing.Ab12.up.report", b"{}")
        await client.close()

    assert [code.value for code in codes] == [0, 128]
    assert ack.stream == "UPLINK"


@pytest.mark.parametrize(("user", "key"), [("Ab12", "wrong"), ("nobody", "k"), ("Ab12", "")])
async def test_a_wrong_key_is_turned_away_at_both_doors(auth, user, key):
    """The error of the callout is a refused connection."""
    await issue(auth)

    with pytest.raises(aiomqtt.MqttError):
        async with aiomqtt.Client(
            "127.0.0.1", auth.door.mqtt_port, username=user, password=key or None
        ):
            pass
    with pytest.raises(nats.errors.Error, match="Authorization"):
        await connect(auth, user, key, "_INBOX.x")


@pytest.mark.parametrize("spelling", ["AB12", "ab12"])
async def test_another_spelling_of_an_sn_is_turned_away_at_both_doors(auth, spelling):
    """Otherwise its reports would be lost silently. The failure is recorded."""
    key = await issue(auth)

    with pytest.raises(aiomqtt.MqttError):
        async with aiomqtt.Client(
            "127.0.0.1", auth.door.mqtt_port, username=spelling, password=key
        ):
            pass
    assert (await noted(auth, "MQTT")).wrong == "SN"
    with pytest.raises(nats.errors.Error, match="Authorization"):
        await connect(auth, spelling, key, f"_INBOX.sn.{spelling}")


async def test_a_revoked_device_does_not_come_in_again(auth):
    """The next log-in at the bus sees it."""
    key = await issue(auth)
    await (await connect(auth, "Ab12", key, "_INBOX.sn.Ab12")).close()

    await auth.call("revoke_device_credentials", DEVICE, Done)

    with pytest.raises(nats.errors.Error, match="Authorization"):
        await connect(auth, "Ab12", key, "_INBOX.sn.Ab12")


async def test_an_application_with_events_can_log_in_to_nats(auth):
    """Client id and secret are valid until the secret changes."""
    hears = await auth.application("hears", events=True)
    deaf = await auth.application("deaf")

    client = await connect(auth, hears.client_id, hears.client_secret, "_INBOX.app.x")
    await client.close()
    await auth.call(
        "rotate_application_secret", ApplicationRef(hears.application_id), ApplicationSecret
    )

    for refused in (hears, deaf):
        with pytest.raises(nats.errors.Error, match="Authorization"):
            await connect(auth, refused.client_id, refused.client_secret, "_INBOX.app.x")


async def test_a_crowd_of_devices_logs_in_together(auth):
    """Concurrent logins succeed within the server's timeout."""
    devices = [DeviceRef(f"C{number}", number, "t1") for number in range(60)]
    keys = [await issue(auth, device) for device in devices]

    clients = await asyncio.gather(
        *(
            connect(auth, device.sn, key, f"_INBOX.sn.{device.sn}")
            for device, key in zip(devices, keys, strict=True)
        )
    )

    assert all(client.is_connected for client in clients)
    await asyncio.gather(*(client.close() for client in clients))


async def noted(auth, over: str) -> LastRefusedLogin:
    """The last refused log-in of the device, as soon as it is one over `over`."""
    async with asyncio.timeout(30):
        while True:
            found = await auth.call("last_refused_login", DEVICE, LastRefusedLogin)
            if found.over == over:
                return found
            await asyncio.sleep(0.02)


async def test_the_last_log_in_with_a_wrong_key_is_noted(auth):
    """Time, protocol and reason are stored, for known devices only."""
    await issue(auth)
    none = await auth.call("last_refused_login", DEVICE, LastRefusedLogin)
    assert none == LastRefusedLogin()
    before = now_ms()
    for sn in ("nobody", "ab12"):
        with pytest.raises(Unauthenticated):
            await auth.call("check_device", DeviceLogin(sn, "a guess"), DeviceIdentity)
    found = await noted(auth, "HTTP")
    assert before <= found.at <= now_ms()
    assert found.wrong == "KEY"
    assert await auth.redis.keys("tw:refused-login:*") == [b"tw:refused-login:AB12"]
    assert b"a guess" not in await auth.redis.get("tw:refused-login:AB12")
    assert 0 < await auth.redis.ttl("tw:refused-login:AB12") <= RETENTION_SECONDS
    other = DeviceRef("Ab12", 8, "t1")
    assert await auth.call("last_refused_login", other, LastRefusedLogin) == LastRefusedLogin()


async def test_the_gateway_records_failed_logins_of_devices(auth):
    """It does so where Redis knows the device; no request or write delays the answer."""
    key = await issue(auth)
    logins = RejectedLogins(auth.redis)
    reader = DeviceKeyReader(auth.redis, auth.rpc, partial(logins.record, over="HTTP"))
    assert await reader.authenticate("Ab12", key) == PRINCIPAL
    assert await reader.authenticate("Ab12", "wrong") is None
    assert await logins.last("Ab12", 7, "t1") is None
    await logins.write()
    first = await logins.last("Ab12", 7, "t1")
    assert first is not None
    assert await reader.authenticate_certificate(PeerCertificate("Ab12", "0B")) is None
    await logins.write()
    second = await logins.last("Ab12", 7, "t1")
    assert second is not None
    assert second.at >= first.at
    assert (first.wrong, second.wrong) == ("KEY", "CERTIFICATE")


async def test_a_storm_of_one_tenant_leaves_places_to_others(auth):
    """Their people see why their device is silent."""
    logins = RejectedLogins(auth.redis)
    for number in range(MAX_DEVICES_PER_WRITE):
        logins.record(DeviceKeyCopy(f"S{number}", number, "t1", "hash"), "KEY", "MQTT")
    logins.record(DeviceKeyCopy("Other", 1, "t2", "hash"), "KEY", "MQTT")
    await logins.write()
    assert len(await auth.redis.keys("tw:refused-login:S*")) == MAX_WAITING_PER_TENANT
    assert (await logins.last("Other", 1, "t2")).over == "MQTT"


async def test_a_storm_of_wrong_keys_is_written_once_for_each_device(auth):
    """The number of writes does not grow with the number of attempts."""
    logins = RejectedLogins(auth.redis)
    for _ in range(3):
        for number in range(MAX_DEVICES_PER_WRITE + 10):
            logins.record(
                DeviceKeyCopy(f"S{number}", number, f"t{number % 5}", "hash"), "KEY", "MQTT"
            )
    await logins.write()
    assert len(await auth.redis.keys("tw:refused-login:*")) == MAX_DEVICES_PER_WRITE
    logins.record(
        DeviceKeyCopy(f"S{MAX_DEVICES_PER_WRITE}", MAX_DEVICES_PER_WRITE, "t1", "hash"),
        "KEY",
        "NATS",
    )
    await logins.write()
    assert (
        await logins.last(f"S{MAX_DEVICES_PER_WRITE}", MAX_DEVICES_PER_WRITE, "t1")
    ).over == "NATS"
