"""Nobody outside harms a neighbour on the bus: replies, headers, consumers, subscriptions."""

import asyncio
import contextlib

import nats
import nats.errors
import nats.js.errors
import pytest

from libs.common.bus.accounts import MAX_SUBSCRIPTIONS_PER_EXTERNAL_CONNECTION
from tests.integration.nats_door import (
    KEYS,
    WAIT,
    Server,
)

MISDIRECTED = (
    "$JS.API.STREAM.DELETE.UPLINK",
    "$JS.API.STREAM.PURGE.EVENTS",
    "thing.D2.down.command",
    "_INBOX.sn.D2.stolen",
    "_INBOX.app.app2.stolen",
    "event.t2.device.1.reported",
    "$JS.ACK.EVENTS.app2.1.1.1.1.0",
    "thing.D2.up.report",
    "relay.thing.D2.up.report",
)
"""Where nobody may have an answer sent."""


async def everything(server: Server, stack: contextlib.AsyncExitStack) -> list[str]:
    """What is heard from now on: by services, by another device, by another application."""
    heard: list[str] = []

    async def hear(message) -> None:
        heard.append(message.subject)

    for login, subjects in (
        (
            server.service("admin"),
            ("thing.D2.>", "event.t2.>", "$JS.API.STREAM.DELETE.>", "$JS.API.STREAM.PURGE.>"),
        ),
        (server.device("D2"), ("thing.D2.down.>", "_INBOX.sn.D2.>")),
        (server.application("app2"), ("event.t2.>", "_INBOX.app.app2.>")),
    ):
        client = await stack.enter_async_context(login)
        for subject in subjects:
            await client.subscribe(subject, cb=hear)
        for _ in range(2):
            await client.flush()
    return heard


async def streams(server: Server) -> dict[str, int]:
    async with server.service("admin") as admin:
        found = await admin.jetstream().streams_info()
    return {entry.config.name: entry.state.last_seq for entry in found}


@pytest.mark.parametrize(
    "headers", [None, {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1"}, {"Nats-Msg-Id": "1"}]
)
async def test_a_device_cannot_redirect_answers(server, headers):
    """This includes the first message of a batch, which JetStream answers with an empty message."""
    async with contextlib.AsyncExitStack() as stack:
        heard = await everything(server, stack)
        before = await streams(server)
        client = await stack.enter_async_context(server.device("D1"))

        for reply in MISDIRECTED:
            await client.publish("thing.D1.up.report", b"{}", reply=reply, headers=headers)
        ack = await client.jetstream().publish("thing.D1.up.report", b"last")

        assert ack.stream == "UPLINK"
        after = await streams(server)
        assert after == before | {"UPLINK": before["UPLINK"] + 1}
        assert heard == []


async def test_an_application_cannot_redirect_answers(server):
    """This includes empty answers, events, and JetStream's answers about its consumer."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(server.application("app1"))
        js = client.jetstream()
        reader = await js.pull_subscribe("event.t1.>", durable="app1", stream="EVENTS")
        admin = await stack.enter_async_context(server.service("admin"))
        await admin.jetstream().publish("event.t1.device.1.reported", b"t1")
        (message,) = await reader.fetch(1, timeout=WAIT)
        heard = await everything(server, stack)
        before = await streams(server)

        for reply in MISDIRECTED:
            for subject, body in (
                ("$JS.API.CONSUMER.MSG.NEXT.EVENTS.app1", b'{"batch":1,"no_wait":true}'),
                ("$JS.API.CONSUMER.INFO.EVENTS.app1", b""),
                ("$JS.API.CONSUMER.CREATE.EVENTS.app1.event.t1.>", b"{}"),
                (message.reply, b"+NXT"),
                (message.reply, b"+ACK"),
            ):
                await client.publish(subject, body, reply=reply)
        await message.ack_sync()

        assert await streams(server) == before
        assert heard == []
        await js.delete_consumer("EVENTS", "app1")


async def test_a_rejected_request_for_events_is_no_event(server):
    """The answer is a status without a body, which clients of JetStream raise as an error."""
    async with server.application("app1") as client:
        next_event = "$JS.API.CONSUMER.MSG.NEXT.EVENTS.app1"
        answer = await client.request(next_event, b"{", timeout=WAIT)
        assert (answer.data, answer.headers["Status"]) == (b"", "400")
        assert "not a request for messages" in answer.headers["Description"]


async def test_a_consumer_that_pushes_is_refused(server):
    """It would speak on any subject of the stream's account; the refusal names the field."""
    async with server.application("app1") as client:
        with pytest.raises(nats.js.errors.BadRequestError, match="deliver_subject"):
            await client.jetstream()._jsm._api_request(
                "$JS.API.CONSUMER.CREATE.EVENTS.app1.event.t1.>",
                b'{"stream_name":"EVENTS","config":{"durable_name":"app1","filter_subject":'
                b'"event.t1.>","deliver_subject":"thing.D2.down.command"}}',
            )


async def test_one_message_id_of_two_devices_is_two_messages(server):
    """A message id is the sender's own; the same device's second one is the same message."""
    async with server.device("D1") as one, server.device("D2") as other:
        acks = [
            await client.jetstream().publish(
                f"thing.{sn}.up.report", b"{}", headers={"Nats-Msg-Id": "1"}
            )
            for client, sn in ((one, "D1"), (other, "D2"), (one, "D1"))
        ]

    assert [ack.duplicate for ack in acks] == [None, None, True]


async def test_unfinished_batches_of_a_device_hold_up_nobody(server):
    """They are refused with a reason, and a service's batch is taken."""
    async with server.device("D1") as client, server.service("admin") as admin:
        for number in range(60):
            headers = {"Nats-Batch-Id": str(number), "Nats-Batch-Sequence": "1"}
            with pytest.raises(nats.js.errors.BadRequestError, match="batches"):
                await client.jetstream().publish("thing.D1.up.report", b"{}", headers=headers)
        commit = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"}
        ack = await admin.jetstream().publish("event.t3.x", b"{}", headers=commit)

    assert ack.stream == "EVENTS"


@pytest.mark.parametrize("subject", ["$MQTT.sub.>", "$MQTT.>", "$MQTT.msgs.>", "relay.>", "$JS.>"])
async def test_nats_clients_cannot_read_commands_of_mqtt_devices(server, subject):
    """They see neither forwarded messages nor those of JetStream."""
    for login in (server.device("D1"), server.application("app1")):
        async with login as client:
            await client.subscribe(subject)
            await client.flush()

            assert "subscription" in await asyncio.wait_for(client.refusals.get(), WAIT)


async def test_an_mqtt_device_cannot_ask_for_internal_subjects(server):
    """nats-server refuses the topic itself."""
    async with server.mqtt("D1", KEYS["D1"]) as device:
        codes = await device.subscribe([("$MQTT/sub/#", 1), ("$MQTT/msgs/#", 0)], timeout=WAIT)

    assert [code.value for code in codes] == [128, 128]


async def test_a_nats_connection_has_a_bounded_number_of_subscriptions(server):
    async with server.application("app1") as client:
        for number in range(MAX_SUBSCRIPTIONS_PER_EXTERNAL_CONNECTION + 1):
            await client.subscribe(f"event.t1.{number}")
        await client.flush()

        assert "maximum subscriptions" in await asyncio.wait_for(client.refusals.get(), WAIT)
