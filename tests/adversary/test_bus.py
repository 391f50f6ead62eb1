"""What was found on the bus: each hole as somebody used it."""

import itertools
import json
from typing import Any

import nats
import pytest

from tests.adversary.logins import Login, assert_ignorant, logins
from tests.adversary.mqtt_wire import Connect, MqttWire, Publish, Subscribe
from tests.adversary.nats_wire import Frame, Publication, Subscription, attacking, received
from tests.adversary.oracle import Oracle
from tests.adversary.town import Home
from tests.e2e.devices import Device
from tests.e2e.waiting import PATIENCE, until

pytestmark = pytest.mark.xdist_group("platform")

REPORT = json.dumps({"properties": {"counter": 1}})
BATCH = (("Nats-Batch-Id", "b"), ("Nats-Batch-Sequence", "1"))
INBOX = "_INBOX.app.<my_client>.x"
FOREIGN = (
    "$JS.API.STREAM.DELETE.UPLINK",
    "$JS.API.STREAM.DELETE.EVENTS",
    "$JS.API.STREAM.PURGE.DEAD",
    "$JS.API.CONSUMER.DELETE.UPLINK.ingest",
    "$JS.API.CONSUMER.DELETE.EVENTS.<their_client>",
    "$JS.ACK.UPLINK.ingest.1.1.1.1.0",
    "thing.<their_sn>.up.report",
    "thing.<neighbour_sn>.down.command",
    "thing.<their_sn>.down.command",
    "event.<their_tenant>.device.<their_device>.reported",
    "_INBOX.app.<their_client>.ear.x",
    "_INBOX.sn.<their_sn>.ear.x",
    "_INBOX.integration.<their_integration>.ear.x",
    "rpc.integration.<their_integration>.call",
)
"""Where an answer must not go."""


def consumer(deliver: str = "all", **more: Any) -> Publication:
    """Return the request that creates Mallory's durable consumer."""
    config = {
        "durable_name": "<my_client>",
        "name": "<my_client>",
        "ack_policy": "explicit",
        "deliver_policy": deliver,
        "filter_subject": "event.<my_tenant>.>",
        **more,
    }
    return Publication(
        "$JS.API.CONSUMER.CREATE.EVENTS.<my_client>.event.<my_tenant>.>",
        INBOX,
        payload=json.dumps({"stream_name": "EVENTS", "config": config}),
    )


DELETE = Publication("$JS.API.CONSUMER.DELETE.EVENTS.<my_client>", INBOX)
NEXT = "$JS.API.CONSUMER.MSG.NEXT.EVENTS.<my_client>"


async def attack(oracle: Oracle, kind: str, *frames: Frame) -> None:
    """Send frames as one of Mallory's logins."""
    town = oracle.town
    port = town.mallory.platform.nats_port
    async with attacking(port, logins(town)[kind], town, frames) as wires:
        await oracle.judge()
        assert_ignorant(await received(wires), kind, town)


async def test_the_answer_to_a_batch_goes_nowhere_else(oracle: Oracle) -> None:
    """The server answers the first message of a batch with an empty message.

    Some services would take it for a request.
    """
    subject = "thing.<my_sn>.up.report"
    await attack(oracle, "device", *(Publication(subject, to, BATCH, REPORT) for to in FOREIGN))


async def test_acknowledgements_of_reports_reach_only_their_device(oracle: Oracle) -> None:
    """An acknowledgement cannot be redirected to another subject."""
    subject = "thing.<my_sn>.up.report"
    await attack(oracle, "device", *(Publication(subject, to, (), REPORT) for to in FOREIGN))


async def test_the_answer_to_a_pull_goes_nowhere_else(oracle: Oracle) -> None:
    """Be it that there is nothing, or events, whose content Mallory chooses."""
    body = json.dumps({"batch": 5, "no_wait": True})
    asked = [Publication(NEXT, to, (), body) for to in FOREIGN]
    consumers = (DELETE, consumer("new")), (DELETE, consumer("all"))
    await attack(oracle, "application", *(one for made in consumers for one in (*made, *asked)))


async def test_the_answer_to_an_acknowledgement_goes_nowhere_else(oracle: Oracle) -> None:
    """The server answers `+ACK` with an empty message, `+NXT` with an event."""
    frames: list[Frame] = []
    for body in ("+ACK", "-NAK", "+TERM", "+WPI", "+NXT"):
        pull = Publication(NEXT, INBOX, (), json.dumps({"batch": len(FOREIGN)}))
        frames += [DELETE, consumer(), pull]
        for number, reply in enumerate(FOREIGN, 1):
            subject = f"$JS.ACK.EVENTS.<my_client>.1.{number}.{number}.1.0"
            frames.append(Publication(subject, reply, (), body))
    await attack(oracle, "application", *frames)


async def test_a_consumer_pushes_to_nobody_else(oracle: Oracle) -> None:
    """A push consumer would publish to any subject of the stream's account."""
    pushed = (consumer(deliver_subject=to) for to in FOREIGN)
    frames = [frame for one in pushed for frame in (DELETE, one)]
    await attack(oracle, "application", *frames)
    await attack(oracle, "application", DELETE)


@pytest.mark.parametrize("kind", ["device", "application", "integration"])
async def test_only_their_device_receives_commands_over_mqtt(oracle: Oracle, kind: str) -> None:
    """No login on plain NATS receives the messages that deliver commands of QoS 1."""
    subjects = ("$MQTT.sub.>", "$MQTT.>", "*.sub.>", "thing.*.down.>", ">")
    frames = (Subscription(subject, id=str(at)) for at, subject in enumerate(subjects))
    await attack(oracle, kind, *frames)


async def test_a_message_id_is_the_devices_own(oracle: Oracle) -> None:
    """Devices may use the same message id: each report is stored, and each once."""
    town = oracle.town
    homes = (town.mallory, *town.others)
    for number, home in enumerate(homes):
        async with home.device.nats() as client:
            body = json.dumps({"properties": {"attempt": number, "interval": 7}}).encode()
            for _ in range(2):
                answer = await client.request(
                    f"thing.{home.device.sn}.up.report",
                    body,
                    timeout=PATIENCE,
                    headers={"Nats-Msg-Id": "1"},
                )
            assert json.loads(answer.data).get("duplicate") is True, answer.data
    for number, home in enumerate(homes):
        await home.device.stored({"attempt": number, "interval": 7})
    await oracle.settle()


async def test_unfinished_batches_hold_up_nobody(oracle: Oracle) -> None:
    """Sixty batches that a device leaves open do not refuse the array of another."""
    frames = [
        Publication(
            "thing.<my_sn>.up.report",
            "_INBOX.sn.<my_sn>.x",
            (("Nats-Batch-Id", f"batch {number}"), ("Nats-Batch-Sequence", "1")),
            REPORT,
        )
        for number in range(60)
    ]
    town = oracle.town
    port = town.mallory.platform.nats_port
    async with attacking(port, logins(town)["device"], town, frames):
        for home in town.others:
            reports = [{"properties": {"counter": number}} for number in range(3)]
            status, body = await home.device.http("POST", "report", reports)
            assert status == 202, body
            await home.device.stored({"counter": 2})
    await oracle.settle()


async def kept(oracle: Oracle, stream: str) -> int:
    """Messages in a stream."""
    async with oracle.town.mallory.platform.admin() as admin:
        return (await admin.jetstream().stream_info(stream)).state.messages


async def test_retained_messages_are_bounded(oracle: Oracle) -> None:
    """Three hundred retained messages of one device leave only a few, on any topics."""
    town = oracle.town
    login = logins(town)["device"]
    async with MqttWire(town.mallory.platform.mqtt_port) as wire:
        assert await wire.log_in(Connect("<my_sn>").frame(town, login))
        for number in range(300):
            topic = f"thing/<my_sn>/up/x{number}"
            await wire.say(Publish(topic, REPORT, qos=number % 2, retain=True).frame(town))
    assert await kept(oracle, "$MQTT_rmsgs") <= 16
    await oracle.judge()


def spellings(text: str) -> list[str]:
    """Return variants of a text in upper and lower case."""
    pairs = [sorted({letter.lower(), letter.upper()}) for letter in text]
    return ["".join(letters) for letters in itertools.islice(itertools.product(*pairs), 30)]


@pytest.mark.parametrize(
    "way", [pytest.param("any ids", marks=pytest.mark.slow), "spellings of its SN"]
)
async def test_sessions_of_a_device_are_bounded(oracle: Oracle, way: str) -> None:
    """Thirty persistent sessions of one device leave a handful, however it calls itself."""
    device = await oracle.town.mallory.add_device()
    any_ids = [f"{device.sn[-6:]}-{number}" for number in range(30)]
    before = await kept(oracle, "$MQTT_sess")
    for name in any_ids if way == "any ids" else spellings(device.sn):
        await persistent_session(oracle, device, name)

    async def few() -> bool:
        return await kept(oracle, "$MQTT_sess") <= before + 10

    await until(few)
    await oracle.judge()


async def persistent_session(oracle: Oracle, device: Device, client_id: str) -> None:
    """Leave a session with a subscription of QoS 1 behind; refused ones leave nothing."""
    town = oracle.town
    async with MqttWire(town.mallory.platform.mqtt_port) as wire:
        login = Login(device.sn, device.key)
        if await wire.log_in(Connect(client_id, clean=False).frame(town, login)):
            await wire.say(Subscribe(f"thing/{device.sn}/down/#", qos=1).frame(town))
            await wire.leave()


async def reader(home: Home) -> nats.NATS:
    """Return a connection of a household's application that does not reconnect."""
    login = Login(home.application.client_id, home.application.client_secret)
    return await nats.connect(
        f"nats://127.0.0.1:{home.platform.nats_port}",
        user=login.user,
        password=login.password,
        allow_reconnect=False,
    )


@pytest.mark.parametrize("spelling", [str, str.upper])
async def test_no_sn_closes_an_application(oracle: Oracle, spelling: Any) -> None:
    """A device named like an application's client closes only its connections."""
    town = oracle.town
    client = await reader(town.alice)
    name = spelling(town.alice.application.client_id)
    device = await town.mallory.add_device(snDevEUI=name)
    await device.new_key()
    await town.mallory.application.data("DELETE", f"/devices/{device.id}")
    await client.flush()
    assert client.is_connected
    await client.close()
    await oracle.judge()
