"""Whose an MQTT client id is, and how many sessions a device has."""

import asyncio
import contextlib

import aiomqtt
import pytest
from aiomqtt.exceptions import MqttConnectError

from libs.common.contracts.auth import DeviceCredentials, DeviceRef
from services.auth.callout.admission_registry import MAX_EXTRA_CLIENT_IDS, _hash_session_id

WAIT = 5.0
CLIENT_ID_REFUSED = "Client identifier not valid"


async def issue(auth, sn: str) -> str:
    device = DeviceRef(sn, sum(sn.encode()), "t1")
    return (await auth.call("issue_device_credentials", device, DeviceCredentials)).key


def mqtt(auth, sn: str, key: str, identifier: str, **more) -> aiomqtt.Client:
    return aiomqtt.Client(
        "127.0.0.1",
        auth.door.mqtt_port,
        username=sn,
        password=key,
        identifier=identifier,
        timeout=WAIT,
        **more,
    )


async def sessions(auth) -> set[str]:
    """The subjects of the sessions that nats-server keeps."""
    info = await auth.bus.js.stream_info("$MQTT_sess", subjects_filter="$MQTT.sess.>")
    return set(info.state.subjects or {})


async def keep_session(auth, sn: str, key: str, identifier: str) -> None:
    """Connect, subscribe and disconnect; nats-server keeps the session."""
    async with mqtt(auth, sn, key, identifier, clean_session=False) as device:
        await device.subscribe(f"thing/{sn}/down/#", qos=1, timeout=WAIT)


async def test_a_client_id_is_no_other_devices(auth):
    """The id that a device uses, and its SN, are refused to others; its connection goes on."""
    one, other = await issue(auth, "One"), await issue(auth, "Other")

    async with mqtt(auth, "One", one, "mine") as device:
        for taken in ("mine", "One", "ONE"):
            with pytest.raises(aiomqtt.MqttError):
                async with mqtt(auth, "Other", other, taken):
                    pass
        await device.publish("thing/One/up/report", b"{}", qos=1, timeout=WAIT)
    async with mqtt(auth, "One", one, "mine"), mqtt(auth, "Other", other, "Other"):
        pass


async def test_an_id_ends_when_a_device_of_that_sn_gets_a_key(auth):
    """The previous user of the id loses it to the device with that SN."""
    early = await issue(auth, "Early")
    async with mqtt(auth, "Early", early, "Late"):
        pass

    late = await issue(auth, "Late")

    with pytest.raises(aiomqtt.MqttError):
        async with mqtt(auth, "Early", early, "Late"):
            pass
    async with mqtt(auth, "Late", late, "Late"):
        pass


async def test_a_device_may_choose_its_client_id(auth):
    """Its SN in any case, one made by the server, and any word."""
    key = await issue(auth, "Chooser")

    for identifier in ("Chooser", "CHOOSER", "", "paho/7f", "Chooser-2"):
        async with mqtt(auth, "Chooser", key, identifier):
            pass


async def test_a_device_has_few_sessions(auth):
    """With one more than it may have it loses the oldest, which is deleted from the server.

    Whoever deletes a session comes with its id, and makes it anew for a moment.
    """
    key = await issue(auth, "Many")
    await auth.bus.js.purge_stream("$MQTT_sess")

    for number in range(MAX_EXTRA_CLIENT_IDS + 3):
        await keep_session(auth, "Many", key, f"many-{number}")
    async with asyncio.timeout(WAIT):
        while len(await sessions(auth)) != MAX_EXTRA_CLIENT_IDS:
            await asyncio.sleep(0.02)


async def test_an_expired_id_of_another_device_is_not_released(auth):
    """Evicting an id that another device has reserved since keeps that device's session."""
    first, second = await issue(auth, "First"), await issue(auth, "Second")
    moved, oldest = (f"$MQTT.sess.{_hash_session_id(name)}" for name in ("moved", "first-0"))

    async with mqtt(auth, "First", first, "moved"):
        pass
    await auth.redis.delete("tw:mqtt-id:moved")  # as if it had expired
    await keep_session(auth, "Second", second, "moved")
    for number in range(MAX_EXTRA_CLIENT_IDS + 1):
        await keep_session(auth, "First", first, f"first-{number}")
    async with asyncio.timeout(WAIT):
        while oldest in await sessions(auth):
            await asyncio.sleep(0.02)

    assert moved in await sessions(auth)
    with pytest.raises(aiomqtt.MqttError):
        async with mqtt(auth, "First", first, "moved"):
            pass


async def test_a_refused_sn_takes_no_place(auth):
    """The SN of another device is not counted, and the id that it replaced has no session."""
    key = await issue(auth, "Full")
    await issue(auth, "Taken")
    await auth.bus.js.purge_stream("$MQTT_sess")

    for number in range(MAX_EXTRA_CLIENT_IDS):
        await keep_session(auth, "Full", key, f"full-{number}")
    with pytest.raises(aiomqtt.MqttError):
        async with mqtt(auth, "Full", key, "Taken"):
            pass
    async with asyncio.timeout(WAIT):
        while len(await sessions(auth)) != MAX_EXTRA_CLIENT_IDS - 1:
            await asyncio.sleep(0.02)

    expected = [f"full-{number}".encode() for number in range(1, MAX_EXTRA_CLIENT_IDS)]
    assert await auth.redis.zrange("tw:mqtt-ids:FULL", 0, -1) == expected


async def test_logging_in_has_an_end(auth, monkeypatch):
    """A device that connects again and again is refused for a while, and no other one."""
    monkeypatch.setattr("services.auth.callout.admission_registry.MAX_USER_LOGIN_BURST", 3)
    monkeypatch.setattr("services.auth.callout.admission_registry.USER_LOGINS_PER_SECOND", 0.001)
    one, other = await issue(auth, "Hasty"), await issue(auth, "Calm")

    came = 0
    for _ in range(6):
        with contextlib.suppress(aiomqtt.MqttError):
            async with mqtt(auth, "Hasty", one, "Hasty"):
                came += 1
    async with mqtt(auth, "Calm", other, "Calm"):
        pass

    assert came == 3


@pytest.mark.parametrize("identifier", ["a.b", "a b", "a*", "a>", "a\tb"])
async def test_a_client_id_with_a_character_of_subjects_is_refused(auth, identifier):
    """The broker rejects client ids with dots, asterisks, `>` or white space."""
    key = await issue(auth, "Dotted")

    with pytest.raises(MqttConnectError) as refused:
        async with mqtt(auth, "Dotted", key, identifier):
            pass
    assert str(refused.value.rc) == CLIENT_ID_REFUSED


@pytest.mark.parametrize(
    "topic", ["thing/Blank/up/re port", "thing/Blank/up/report ", "thing/Blank/up/\treport"]
)
async def test_white_space_in_a_topic_closes_the_connection(auth, topic):
    """Another wrong topic leaves it open (docs/reference/device-protocol.md)."""
    key = await issue(auth, "Blank")

    async with mqtt(auth, "Blank", key, "Blank") as device:
        await device.publish("thing/Blank/up/nothing", b"{}", qos=1, timeout=WAIT)
        await device.publish(topic, b"{}")
        with pytest.raises(aiomqtt.MqttError, match="Disconnected"):
            async for _ in device.messages:
                pass
