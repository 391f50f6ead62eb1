"""Uplinks and downlinks of network servers through a real broker; `device` is played."""

import asyncio

import msgspec
import pytest
from chirpstack_api.integration import integration_pb2 as pb
from pymongo.errors import AutoReconnect

from deploy.platform.certificates import CertificateAuthority, create_authority_pem
from libs.common.contracts.frames import Downlink
from libs.common.errors import InvalidInput
from services.management.networks import broker as broker_module
from services.management.networks.chirpstack import ChirpStack
from services.management.networks.milesight import Milesight
from services.management.networks.store import NetworkStore
from services.management.networks.the_things_stack import TheThingsStack
from tests.integration.management.networks.conftest import PASSWORD, USER, running_broker
from tests.unit.management.networks import samples
from tests.unit.management.networks.samples import APPLICATION, EUI

EVENT = f"application/{APPLICATION}/device/{EUI}/event/"
COMMAND = f"application/{APPLICATION}/device/{EUI}/command/down"


async def test_uplinks_and_downlinks_of_chirpstack(broker, hosted):
    """Uplinks become frames, a downlink is reported by its id, and a copy is not queued again."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        device = await played.add({"dev_eui": EUI.lower(), "model": "M"})
        assert device.identifier == EUI
        await played.update(broker.settings)
        await played.shows(connected=True, last_error="")
        await server.publish(EVENT + "up", samples.CHIRPSTACK_UP, qos=1)
        await server.publish(EVENT + "join", samples.chirpstack(), qos=1)
        await played.until(lambda: played.links)
        assert [frame.frame.counter for frame in played.frames] == [4]

        await server.subscribe(COMMAND, qos=1)
        downlink = Downlink(id="17-0", port=85, data=b"\x01")
        await played.carry(device, downlink)
        await played.carry(device, downlink, Downlink(id="17-1", port=85, data=b"\x02"))
        commands = [await anext(server.messages) for _ in range(2)]
        first, second = [msgspec.json.decode(command.payload) for command in commands]
        assert (first["data"], second["data"]) == ("AQ==", "Ag==")
        sent = samples.chirpstack(queueItemId=second["id"])
        await server.publish(EVENT + "txack", samples.chirpstack(queueItemId="x"), qos=1)
        await server.publish(EVENT + "txack", sent, qos=1)
        await played.until(lambda: played.downlinks)
        assert [(one.downlink, one.state) for one in played.downlinks] == [("17-1", "SENT")]


async def test_uplinks_and_downlinks_of_the_things_stack(broker, hosted):
    """The user name is the application, which determines the topics."""
    up = f"v3/{USER}/devices/dev1"
    async with asyncio.timeout(60), hosted(TheThingsStack) as played, broker.client() as server:
        device = await played.add({"dev_eui": "0004A30B001C0530", "model": "M", "device": "dev1"})
        await played.update(broker.settings)
        await played.shows(connected=True)
        await server.subscribe(f"{up}/down/push", qos=1)
        await played.carry(device, Downlink(id="3", port=1, data=b"\x07"))
        pushed = msgspec.json.decode((await anext(server.messages)).payload)["downlinks"][0]
        await server.publish(f"{up}/up", samples.TTS_UP, qos=1)
        await played.until(lambda: played.frames)
        ids = pushed["correlation_ids"]
        await server.publish(f"{up}/down/sent", samples.tts(downlink_sent={"correlation_ids": ids}))
        await played.until(lambda: played.downlinks)
        assert played.downlinks[0].downlink == "3"


async def test_uplinks_and_downlinks_of_a_milesight_gateway(broker, hosted):
    """The settings contain the topics; states of downlinks are assigned in their order."""
    async with asyncio.timeout(60), hosted(Milesight) as played, broker.client() as server:
        device = await played.add({"dev_eui": "24e124136b502217", "model": "M"})
        topics = {"uplink_topic": "gw/up", "downlink_topic": "gw/$deveui/down"}
        await played.update(broker.settings | topics | {"ack_topic": "gw/ack"})
        await played.shows(connected=True)
        await server.publish("gw/up", samples.MILESIGHT_UP, qos=1)
        await played.until(lambda: played.frames)
        await server.subscribe("gw/24e124136b502217/down", qos=1)
        await played.carry(device, *(Downlink(id=one, port=85, data=b"\x01") for one in "ab"))
        body = msgspec.json.decode((await anext(server.messages)).payload)
        assert body == {"confirmed": False, "fPort": 85, "data": "AQ=="}
        for acknowledged in (True, False, True):
            body = {"devEUI": "24e124136b502217", "acknowledged": acknowledged}
            await server.publish("gw/ack", msgspec.json.encode(body), qos=1)
        await server.publish("gw/up", samples.MILESIGHT_UP, qos=1)
        await played.until(lambda: len(played.frames) > 1)
        told = [(downlink.downlink, downlink.state) for downlink in played.downlinks]
        assert told == [("a", "ACKNOWLEDGED"), ("b", "UNACKNOWLEDGED")]
        await played.update({"uplink_topic": ""})
        await played.until(lambda: _error(played) == "uplink_topic: is not set")


async def test_subscriptions_of_removed_applications_end(broker, hosted):
    """The broker would remember the earlier subscription."""
    other = (EVENT + "up").replace(APPLICATION, "00000000-0000-4000-8000-000000000000")
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        await played.add({"dev_eui": EUI, "model": "M"})
        await played.update(broker.settings)
        await played.shows(connected=True)
        await played.update({"broker": ""})
        await played.shows(connected=False)
        await played.update(broker.settings | {"application": APPLICATION})
        await played.shows(connected=True)
        await server.publish(other, samples.CHIRPSTACK_UP, qos=1)
        await server.publish(EVENT + "up", samples.CHIRPSTACK_UP, qos=1)
        await server.publish(EVENT + "join", samples.chirpstack(), qos=1)
        await played.until(lambda: played.links)
        assert len(played.frames) == 1


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        (ChirpStack, {"application": "nonsense/+/x"}, "application"),
        (ChirpStack, {"application": "#"}, "application"),
        (TheThingsStack, {"username": "app/#"}, "username"),
        (Milesight, {"uplink_topic": "gw/#/up"}, "uplink_topic"),
        (Milesight, {"ack_topic": "gw+/up"}, "ack_topic"),
    ],
)
async def test_a_setting_that_makes_no_topic_is_refused(hosted, kind, settings, field):
    """Where it is given, with its name."""
    async with asyncio.timeout(60), hosted(kind) as played:
        with pytest.raises(InvalidInput, match=f"^{field}: "):
            await played.update(settings)


LATE = pb.UplinkEvent(f_port=1, f_cnt=1, data=b"x", device_info=samples.device_info())
LATE.time.seconds = 2**61
UP = samples.CHIRPSTACK_UP
ODD = {
    "no zone": (UP.replace(b"775023242+00:00", b"775"), ""),
    "no date": (LATE.SerializeToString(), ""),
    "no number": (UP.replace(b'"fCnt": 4', b'"fCnt": "many"'), "cannot be decoded"),
    "no UTF-8": (UP.replace(b'"00189440"', b'"\xff"'), "utf-8"),
    "a long rate": (UP.replace(b'"spreadingFactor": 11', b'"spreadingFactor": ' + b"9" * 140), ""),
}


@pytest.mark.parametrize("case", ODD)
async def test_an_odd_message_holds_up_no_other(broker, hosted, case):
    """It is shown what is wrong with it, or taken as far as it fits."""
    odd, shown = ODD[case]
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        await played.add({"dev_eui": EUI, "model": "M"})
        await played.update(broker.settings)
        await played.shows(connected=True)
        await server.publish(EVENT + "up", odd, qos=1)
        await server.publish(EVENT + "join", samples.chirpstack(), qos=1)
        await played.until(lambda: played.links)
        await played.until(lambda: shown in _error(played))
        assert len(played.frames) == (not shown)
        assert played.own["default"]["connected"]


async def test_a_broker_may_ask_for_a_certificate(tmp_path, hosted, monkeypatch):
    """Without one, or with one of another authority, the reason is shown."""
    monkeypatch.setattr(broker_module, "STEP_TIMEOUT_SECONDS", 1.0)
    with running_broker(tmp_path / "broker", verify=True) as broker:
        good, other = broker.files.authority, CertificateAuthority(create_authority_pem("others"))
        async with asyncio.timeout(60), hosted(ChirpStack) as played:
            await played.update(broker.settings)
            await played.until(lambda: _error(played))
            assert not played.own["default"]["connected"]
            shown = _error(played)
            assert "CERTIFICATE_REQUIRED" in shown
            for authority, connected in ((other, False), (good, True)):
                issued = authority.issue_device_certificate("application", 1)
                shown = {"certificate": issued.certificate, "private_key": issued.key}
                await played.update(shown)
                await played.until(lambda one=connected: played.own["default"]["connected"] is one)
            await played.shows(connected=True, last_error="")


async def test_a_rejected_subscription_is_shown(broker, hosted):
    """The login succeeds, but the broker sends nothing."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played:
        await played.update(broker.settings | {"username": "narrow"})
        await played.until(lambda: "subscription of application/+/device" in _error(played))
        assert not played.own["default"]["connected"]


async def test_unstored_uplinks_are_sent_again(broker, hosted):
    """An uplink is acknowledged when the platform has stored it.

    Others wait while it is unavailable.
    """
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        await played.add({"dev_eui": EUI, "model": "M"})
        await played.update(broker.settings)
        await played.shows(connected=True)
        played.away = True
        await server.publish(EVENT + "up", samples.CHIRPSTACK_UP, qos=1)
        await played.until(lambda: "does not accept" in played.own["default"]["last_error"])
        await played.update({"broker": ""})
        await played.until(lambda: not played.own["default"]["connected"])
        played.away = False
        await played.update(broker.settings)
        await played.until(lambda: played.frames)
        await played.shows(connected=True, last_error="", uplinks=1)


async def test_a_store_that_is_away_costs_no_uplink(broker, hosted, monkeypatch):
    """The connection comes back by itself, and what was not acknowledged with it."""
    save_routes, failures = NetworkStore.save_routes, [AutoReconnect("secret-host:27017")]

    async def failing_once(store, tenant, routes):
        if failures:
            raise failures.pop()
        await save_routes(store, tenant, routes)

    monkeypatch.setattr(NetworkStore, "save_routes", failing_once)
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        await played.add({"dev_eui": EUI, "model": "M"})
        await played.update(broker.settings)
        await played.shows(connected=True)
        await server.publish(EVENT + "up", samples.CHIRPSTACK_UP, qos=1)
        await played.shows(last_error="the platform's database does not answer")
        await played.until(lambda: len(played.frames) > 1)
        await played.shows(connected=True, last_error="")


async def test_devices_that_are_not_known_are_shown(broker, hosted):
    """With the reason, until they are added."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        await played.update(broker.settings)
        await played.shows(connected=True)
        await server.publish(EVENT + "up", samples.CHIRPSTACK_UP, qos=1)
        await played.shows(not_taken=f"{EUI}: chirpstack has no device {EUI}")
        await played.add({"dev_eui": EUI, "model": "M"})
        await server.publish(EVENT + "up", samples.CHIRPSTACK_UP, qos=1)
        await played.shows(not_taken="", uplinks=1)


async def test_connection_errors_are_shown_to_users(broker, hosted):
    """Examples are a wrong password, authority, port or message. A secret stays with its broker."""
    async with asyncio.timeout(60), hosted(ChirpStack) as played, broker.client() as server:
        await played.update(broker.settings | {"password": "wrong"})
        await played.until(lambda: "Not authorized" in _error(played))
        await played.update(broker.settings | {"password": PASSWORD})
        await played.shows(connected=True)
        await server.publish(EVENT + "up", b"{}", qos=1)
        await played.until(lambda: "deviceInfo" in _error(played))
        await played.update({"ca": ""})
        await played.until(lambda: "certificate is not trusted" in _error(played))
        await played.update({"broker": "mqtt://localhost:1"})
        await played.until(lambda: "password: is not set for this broker" in _error(played))
        await played.update({"broker": "mqtt://localhost:1", "password": PASSWORD})
        await played.until(lambda: "refuses connections" in _error(played))


def _error(played) -> str:
    return str(played.own.get("default", {}).get("last_error", ""))
