"""The end of commands: by one reply, or by expiry."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from libs.common.bus.streams import MQTT
from libs.common.contracts.events import DeviceProfile
from libs.common.errors import Unavailable
from services.device.commands import store
from services.device.commands.completion import CommandCanceller, CommandCompletion
from services.device.commands.delivery import DueCommandDelivery
from services.device.commands.events import command_messages, new_command_entries
from services.device.commands.model import (
    DEVICE_DELETED,
    DEVICE_REMOVED,
    Command,
    CommandDownlink,
    utc_now,
)
from services.device.commands.service import task_from_command
from services.device.commands.write_only import MAX_PUBLISH_DELAY, CommandMessageWiper
from services.device.telemetry import ingest
from services.device.telemetry.batch import Batch
from services.device.telemetry.ledger import LedgerTotals
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing
from tests.integration.device.telemetry.world import World
from tests.sender import NoIntegrationSender


def command(number: int, thing: int = 7, **more: Any) -> Command:
    moment = utc_now()
    given: dict[str, Any] = {
        "kind": "SET_PROPERTIES",
        "payload": {"properties": {"interval": number}},
        "created_at": moment,
        "expires_at": moment + timedelta(hours=1),
        "application_id": 1,
    }
    return Command(
        id=number,
        thing_id=thing,
        sn=f"SN{thing}",
        tenant="default",
        profile=DeviceProfile(thing, f"SN{thing}"),
        **{**given, **more},
    )


async def issue(world: World, *commands: Command) -> None:
    await world.write(commands)


async def state(world: World, number: int) -> Command:
    found = await world.commands.find_task(number, "default", 1)
    assert found is not None
    return found


def subjects(said: list[tuple[str, Any]]) -> list[str]:
    return [subject.removeprefix("event.default.") for subject, _ in said]


@pytest.fixture
async def sn(world: World) -> str:
    return await world.add(7)


async def test_a_confirmed_update_is_in_history_latest_values_and_event_once(world: World, sn: str):
    """A repeated reply stores the properties once."""
    await issue(world, command(5))
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    messages = await world.fetch(1)
    for process in (world.first, world.first, world.process()):
        await process.ingest.handle(messages)
    assert (await state(world, 5)).status == "SUCCESS"
    assert [row["p"] for row in await world.stored()] == [{"interval": 5}]
    assert await world.latest_of(7) == {"interval": 5}
    assert subjects(await world.said()) == ["task.5.finished", "device.7.reported"]
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)
    assert await world.database["outbox"].count_documents({}) == 0


async def test_the_last_of_simultaneous_replies_wins(world: World, sn: str, monkeypatch):
    """Replies of a device apply in order, also within a batch and a millisecond."""
    last, busy, overlaps = 10, set(), []
    close = CommandCompletion.close_by_replies

    async def alone(
        self: CommandCompletion, replies: Sequence[tuple[Uplink, Thing]], batch: Batch
    ) -> None:
        things = {thing.id for _, thing in replies}
        overlaps.extend(things & busy)
        busy.update(things)
        await close(self, replies, batch)
        busy.difference_update(things)

    monkeypatch.setattr(CommandCompletion, "close_by_replies", alone)
    for number in range(1, last + 1):
        profile = {"values": [{"key": "level", "value": number}]}
        await issue(world, command(number))
        await issue(world, command(100 + number, kind="SET_PROFILE", payload=profile))
        for answered in (number, 100 + number):
            await world.say(sn, {"commandId": answered, "status": "SUCCESS"}, "reply")
    messages = await world.fetch(2 * last)
    *_, arrived, _ = messages[0].reply.split(".")
    for message in messages:
        *before, _, pending = message.reply.split(".")
        message.reply = ".".join([*before, arrived, pending])
    await world.first.ingest.handle(messages)
    assert overlaps == []
    assert await world.latest_of(7) == {"interval": last}
    assert await world.commands.find_profile(7) == {"level": last}


async def test_values_are_readable_before_their_command_succeeds(
    world: World, sn: str, monkeypatch
):
    """Latest values are written before the command is SUCCESS."""
    apply, seen = world.latest.apply, []

    async def applied(*arguments: Any) -> None:
        seen.append((await state(world, 5)).status)
        await apply(*arguments)

    monkeypatch.setattr(world.latest, "apply", applied)
    await issue(world, command(5))
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    assert seen[0] != "SUCCESS"
    assert (await state(world, 5)).status == "SUCCESS"
    assert await world.latest_of(7) == {"interval": 5}


async def test_a_reply_handled_by_two_processes_counts_once(world: World, sn: str):
    """A reply that two processes handle closes and counts once."""
    other = world.process()
    for number in range(1, 21):
        await issue(world, command(number))
        await world.say(sn, {"commandId": number, "status": "SUCCESS"}, "reply")
        messages = await world.fetch(1)
        await asyncio.gather(world.first.ingest.handle(messages), other.ingest.handle(messages))
        assert await world.totals() == LedgerTotals(stored=number, rejected=0)
    assert len(await world.stored()) == 20
    assert len(await world.said()) == 40


async def test_a_repeated_reply_changes_nothing(world: World, sn: str):
    """A second reply to the same command changes nothing."""
    await issue(world, command(5))
    await world.say(sn, {"commandId": "5", "status": "SUCCESS"}, "reply")
    await world.say(sn, {"commandId": 5, "status": "FAILED"}, "reply")
    first, second = await world.fetch(1), await world.fetch(1)
    for batch in (first, second, second):
        await world.first.ingest.handle(batch)
    assert (await state(world, 5)).status == "SUCCESS"
    assert await world.totals() == LedgerTotals(stored=2, rejected=0)
    assert await world.reasons() == []
    assert len(await world.stored()) == 1


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"{", "invalid reply"),
        ({"commandId": 6, "status": "SUCCESS"}, "the device has no command"),
        ({"commandId": 99, "status": "SUCCESS"}, "the device has no command"),
        ({"commandId": 5, "status": "DONE"}, "SUCCESS or FAILED"),
        ({"commandId": "five", "status": "SUCCESS"}, "commandId: must be an id"),
        ({"commandId": 2**64 - 1, "status": "SUCCESS"}, "commandId: must be an id"),
        ({"commandId": -5, "status": "SUCCESS"}, "commandId: must be an id"),
        ({"status": "SUCCESS"}, "command"),
    ],
    ids=str,
)
async def test_an_invalid_reply_is_rejected_with_a_reason(
    world: World, sn: str, body: Any, word: str
):
    """Invalid replies and those to unknown commands are rejected and close nothing."""
    await issue(world, command(5), command(6, thing=8))
    await world.say(sn, body, "reply")
    await world.deal(1)
    (reason,) = await world.reasons()
    assert word in reason
    assert await world.totals() == LedgerTotals(stored=0, rejected=1)
    assert {(await state(world, number)).status for number in (5, 6)} == {"PENDING"}


async def test_outputs_of_a_service_are_checked(world: World, sn: str):
    """Invalid outputs reject the reply; a later valid reply still counts."""
    calls: dict[str, Any] = {
        "kind": "CALL_SERVICE",
        "payload": {"serviceId": "reboot", "inputs": {}},
    }
    await issue(world, command(5, **calls), command(6, **calls), command(8, **calls))
    answers = [
        {"commandId": 5, "status": "SUCCESS", "outputs": {"took": 3}},
        {"commandId": 6, "status": "SUCCESS", "outputs": {"took": "long"}},
        {"commandId": 8, "status": "FAILED", "error": {"code": 7}},
    ]
    for answer in answers:
        await world.say(sn, answer, "reply")
    await world.deal(3)
    assert (await state(world, 5)).outputs == {"took": 3}
    assert (await state(world, 6)).status == "PENDING"
    assert await world.reasons() == ["command 6: outputs.took: must be an integer"]
    await world.say(sn, {"commandId": 6, "status": "SUCCESS", "outputs": {"took": 4}}, "reply")
    await world.deal(1)
    mended = await state(world, 6)
    assert (mended.status, mended.outputs) == ("SUCCESS", {"took": 4})
    failed = await state(world, 8)
    assert (failed.status, failed.error) == ("FAILED", '{"code":7}')
    assert subjects(await world.said()).count("service.7.replied") == 3
    assert await world.stored() == []


async def test_concurrently_confirmed_profile_values_are_all_stored(world: World, sn: str):
    """Concurrent replies to profile commands keep each other's values."""
    numbers = range(1, 13)
    await issue(
        world,
        *(
            command(n, kind="SET_PROFILE", payload={"values": [{"key": f"k{n}", "value": n}]})
            for n in numbers
        ),
    )
    for number in numbers:
        await world.say(sn, {"commandId": number, "status": "SUCCESS"}, "reply")
    one, other = await world.fetch(6), await world.fetch(6)
    await asyncio.gather(world.first.ingest.handle(one), world.process().ingest.handle(other))
    assert await world.commands.find_profile(7) == {f"k{n}": n for n in numbers}


def delivery(world: World) -> DueCommandDelivery:
    return DueCommandDelivery(
        devices=world.first.devices,
        bus=world.bus,
        commands=world.commands,
        sender=NoIntegrationSender(),
    )


def wiper(world: World) -> CommandMessageWiper:
    return CommandMessageWiper(world.commands.write_only, world.bus)


def secret_command(number: int) -> Command:
    """Return a command with a write-only and a readable value."""
    return command(
        number,
        payload={"properties": {"interval": number}},
        full_payload={"properties": {"interval": number, "pin": f"s3cret-{number}"}},
        write_only=["pin"],
        status="SENT",
    )


async def issue_all(world: World, *commands: Command) -> None:
    """Store commands with their events."""
    await world.write(commands, [entry for one in commands for entry in new_command_entries(one)])


@pytest.fixture
async def away(world: World) -> AsyncIterator[None]:
    """Create an MQTT session that is offline, so that nats-server stores messages."""
    js = world.bus.js
    await js.purge_stream(MQTT)
    consumer = ConsumerConfig(durable_name="away", ack_policy=AckPolicy.EXPLICIT)
    await js.add_consumer(MQTT, consumer)
    yield
    await js.delete_consumer(MQTT, "away")


async def kept_for_mqtt(world: World) -> list[str]:
    """Return the messages that nats-server stores for MQTT sessions."""
    found, sequence = [], 1
    while True:
        try:
            message = await world.bus.js.get_msg(
                MQTT, sequence, "$MQTT.msgs.thing.*.down.command", next=True
            )
        except NotFoundError:
            return found
        found.append((message.data or b"").decode())
        sequence = (message.seq or 0) + 1


async def everything(world: World) -> str:
    """Return all documents and stored messages as text."""
    texts = await kept_for_mqtt(world)
    texts += [repr(entry) for entry in await world.said()]
    for name in await world.database.list_collection_names():
        texts += [repr(one) for one in await world.database[name].find().to_list(None)]
    return "\n".join(texts)


async def test_write_only_values_are_wiped_when_their_command_is_closed(
    world: World, sn: str, away: None
):
    """Values of open commands stay until they are delivered."""
    await issue_all(world, secret_command(5), secret_command(6))
    assert "s3cret-5" in "".join(await kept_for_mqtt(world))
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    await world.deal(1)

    await wiper(world).wipe("default", utc_now())

    assert await world.latest_of(7) == {"interval": 5}
    found = await everything(world)
    assert "s3cret-5" not in found
    assert "s3cret-6" in "".join(await kept_for_mqtt(world))


async def test_a_message_that_is_published_late_is_wiped_too(world: World, sn: str, away: None):
    """A process may publish a command that it read while it was open."""
    late = secret_command(5)
    await issue_all(world, late)
    await world.commands.end(late, "FAILED", "the device said s3cret-5")
    await wiper(world).wipe("default", utc_now())
    await world.outbox.publish_or_store(world.outbox.build_documents(command_messages(late)))
    assert "s3cret-5" in await everything(world)

    await wiper(world).wipe("default", utc_now() + MAX_PUBLISH_DELAY)

    assert "s3cret-5" not in await everything(world)
    assert (
        await world.commands.write_only.list_due_wipes("default", utc_now() + timedelta(days=1))
        == []
    )


async def test_a_restored_command_without_its_values_fails(world: World, sn: str):
    await issue(world, secret_command(5))
    await world.database["commands"].update_one(
        {"_id": 5}, {"$unset": {"sealed": ""}, "$set": {"nextSendAt": utc_now()}}
    )

    await delivery(world).process_due("default")

    ended = await state(world, 5)
    assert (ended.status, ended.error_code) == ("FAILED", "values_not_restored")


async def test_bytes_of_a_closed_command_with_write_only_values_are_wiped(world: World, sn: str):
    coded = secret_command(5)
    await issue(world, coded)
    made = [CommandDownlink(port=85, data=b"s3cret-5")]
    coded.downlinks = await world.commands.coded.store_downlinks(coded, made)
    await world.commands.end(coded, "SUCCESS", None)

    assert "s3cret-5" not in await everything(world)
    assert await world.commands.coded.store_downlinks(coded, made) == []


async def test_nats_stores_no_secret_for_an_offline_device(world: World, sn: str, away: None):
    """A secret is sent when the device connects."""
    await issue_all(world, secret_command(5))
    await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})

    await delivery(world).process_due("default")
    await wiper(world).wipe("default", utc_now())

    assert await kept_for_mqtt(world) == []
    assert (await state(world, 5)).full_payload is not None
    assert (
        await world.commands.write_only.list_due_wipes("default", utc_now() + timedelta(days=1))
        == []
    )


async def test_due_commands_of_one_tenant_do_not_delay_those_of_others(world: World, sn: str):
    """A thousand due commands of another tenant do not delay a command."""
    await issue(world, command(5))
    document = await world.database["commands"].find_one({"_id": 5})
    before = utc_now() - timedelta(seconds=60)
    loud = [document | {"_id": n, "tenant": "loud", "nextSendAt": before} for n in range(6, 1006)]
    await world.database["commands"].insert_many(loud)
    await world.database["commands"].update_one({"_id": 5}, {"$set": {"nextSendAt": utc_now()}})
    assert await world.commands.schedule.list_due_tenants() == ["default", "loud"]
    assert await delivery(world).process_due("default") == 1
    assert await world.commands.schedule.list_due_tenants() == ["loud"]


async def test_an_unanswered_command_ends_as_timeout(world: World, sn: str):
    """TIMEOUT is stored and published once; a later reply is rejected."""
    over = utc_now() - timedelta(seconds=1)
    await issue(world, command(5, created_at=over - timedelta(seconds=9), expires_at=over))
    for _ in range(2):
        await delivery(world).process_due("default")
    assert (await state(world, 5)).status == "TIMEOUT"
    _, (subject, body) = await world.said()
    assert (subject, body["status"]) == ("event.default.task.5.finished", "TIMEOUT")
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    (reason,) = await world.reasons()
    assert "expired" in reason
    assert (await state(world, 5)).status == "TIMEOUT"
    assert await world.totals() == LedgerTotals(stored=0, rejected=1)


async def test_open_commands_of_a_removed_device_end_once(world: World, sn: str):
    """Open commands fail with a code and a reason; a later reply is rejected."""
    call: dict[str, Any] = {
        "kind": "CALL_SERVICE",
        "payload": {"serviceId": "reboot", "inputs": {}},
    }
    await issue(world, command(4), command(5), command(6, **call), command(9, thing=8))
    await world.say(sn, {"commandId": 4, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    for _ in range(2):
        await world.commands.fail_open_commands(7, DEVICE_DELETED)
    for number in (5, 6):
        task = task_from_command(await state(world, number))
        found = (task.status, task.err_code, task.err_msg)
        assert found == ("FAILED", "device_deleted", "the device was deleted")
    assert [(await state(world, number)).status for number in (4, 9)] == ["SUCCESS", "PENDING"]
    said = subjects(await world.said())
    assert (said.count("task.5.finished"), said.count("service.7.replied")) == (1, 1)
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    assert (await state(world, 5)).status == "FAILED"


async def test_stored_messages_of_a_removed_device_are_deleted(world: World, sn: str):
    """The next owner's device receives no command of the previous owner."""
    js, consumer = world.bus.js, ConsumerConfig(durable_name="away", ack_policy=AckPolicy.EXPLICIT)
    await js.purge_stream(MQTT)
    await js.add_consumer(MQTT, consumer)
    for one in (command(5), command(6, thing=8)):
        await world.write([one], new_command_entries(one))
    await CommandCanceller(world.commands, world.bus).cancel_all(
        await world.first.devices.find_by_id(7), DEVICE_REMOVED
    )
    kept = (await js.stream_info(MQTT, subjects_filter=">")).state.subjects
    await js.delete_consumer(MQTT, "away")
    assert kept == {"$MQTT.msgs.thing.SN8.down.command": 1}
    assert (await state(world, 5)).status == "FAILED"


async def test_commands_without_their_device_fail_when_due(world: World, sn: str):
    """Commands of deleted or reassigned devices fail when they are due."""
    await world.add(8, application={"applicationId": 2})
    users = command(3, thing=8, application_id=None, user_id=1)
    await issue(world, command(4), command(5, thing=8), command(6, thing=99), users)
    await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})
    await delivery(world).process_due("default")
    rows = await world.database["commands"].find().sort("_id", 1).to_list(None)
    assert [(row["_id"], row["status"], row.get("errorCode")) for row in rows] == [
        (3, "PENDING", None),
        (4, "PENDING", None),
        (5, "FAILED", "device_removed"),
        (6, "FAILED", "device_deleted"),
    ]


async def test_a_reply_that_races_with_expiry_ends_the_command_once(world: World, sn: str):
    """Either the reply or the timeout closes the command, with one event."""
    for number in range(1, 16):
        over = utc_now()
        await issue(world, command(number, created_at=over - timedelta(seconds=9), expires_at=over))
        await world.say(sn, {"commandId": number, "status": "SUCCESS"}, "reply")
        messages = await world.fetch(1)
        await asyncio.gather(
            world.first.ingest.handle(messages), delivery(world).process_due("default")
        )
    said = subjects(await world.said())
    totals, stored = await world.totals(), len(await world.stored())
    ends = [(await state(world, number)).status for number in range(1, 16)]
    assert [said.count(f"task.{number}.finished") for number in range(1, 16)] == [1] * 15
    assert ends.count("SUCCESS") == stored == totals.stored
    assert ends.count("TIMEOUT") == totals.rejected == len(await world.reasons())


async def test_commands_are_repeated_with_growing_pauses(world: World, sn: str):
    """Pauses grow; commands of offline devices are suspended."""
    await world.database["devices"].update_one({"_id": 7}, {"$set": {"connectStatus": "ONLINE"}})
    await world.add(8)
    await issue(world, command(5), command(6, thing=8))
    heard: list[bytes] = []

    arrived = asyncio.Semaphore(0)

    async def hear(message: Any) -> None:
        heard.append(message.data)
        arrived.release()

    subscription = await world.bus.client.subscribe("thing.*.down.command", cb=hear)
    pauses = []
    for sending in range(1, 5):
        await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})
        await delivery(world).process_due("default")
        await asyncio.wait_for(arrived.acquire(), 10)
        assert len(heard) == sending
        row = await world.database["commands"].find_one({"_id": 5})
        pauses.append((row["nextSendAt"] - utc_now()).total_seconds())
    assert pauses == sorted(pauses)
    assert pauses[0] > 3
    resting = await world.database["commands"].find_one({"_id": 6})
    assert resting["nextSendAt"] == resting["expiresAt"]
    await subscription.unsubscribe()


async def test_a_reconnected_device_receives_its_commands_immediately(world: World, sn: str):
    """Open commands are sent oldest first when the device connects."""
    early = utc_now() - timedelta(minutes=5)
    await issue(world, command(9, created_at=early), command(3))
    await world.commands.schedule.suspend_deliveries([await state(world, 9), await state(world, 3)])
    await world.database["devices"].update_one({"_id": 7}, {"$set": {"connectStatus": "ONLINE"}})
    subscription = await world.bus.client.subscribe("thing.SN7.down.command")
    await delivery(world).process_due("default")
    await world.commands.schedule.resume_deliveries([7], utc_now())
    await delivery(world).process_due("default")
    sent = [(await subscription.next_msg(timeout=5)).data for _ in range(2)]
    assert [b'"commandId":9' in sent[0], b'"commandId":3' in sent[1]] == [True, True]
    await subscription.unsubscribe()


async def test_a_command_with_a_short_lifetime_expires_in_time(world: World, sn: str):
    """A command with a short lifetime expires before its first repetition."""
    await issue(world, command(5, expires_at=utc_now() + timedelta(seconds=1)))
    row = await world.database["commands"].find_one({"_id": 5})
    assert row["nextSendAt"] == row["expiresAt"]


async def test_delivery_publishes_the_event_of_a_command_whose_process_ended(
    world: World, sn: str, monkeypatch: pytest.MonkeyPatch
):
    """The event is published once, with the first repetition."""
    monkeypatch.setattr(world.outbox, "publish_or_store", AsyncMock(return_value=False))
    await issue(world, command(5), command(6))
    monkeypatch.undo()
    for _ in range(2):
        await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})
        await delivery(world).process_due("default")
    assert sorted(subjects(await world.said())) == ["task.5.created", "task.6.created"]
    assert await world.database["commands"].find_one({"unpublished": True}) is None


async def test_the_event_of_a_published_command_is_not_repeated(
    world: World, sn: str, monkeypatch: pytest.MonkeyPatch
):
    """Plain subscribers would receive the copy, which only the stream drops."""
    monkeypatch.setattr(store, "MARK_PUBLISHED_DELAY_SECONDS", 0)
    subscription = await world.bus.client.subscribe("event.>")
    for number in (5, 6):
        await world.write([command(number)], new_command_entries(command(number)))
    async with asyncio.timeout(5):
        while await world.database["commands"].find_one({"unpublished": True}):
            await asyncio.sleep(0)
    await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})
    await delivery(world).process_due("default")
    await world.bus.client.flush()
    assert subscription.pending_msgs == 2
    await subscription.unsubscribe()


async def test_a_late_reply_publishes_the_event_of_a_command_whose_process_ended(
    world: World, sn: str, monkeypatch: pytest.MonkeyPatch
):
    """A polling device may answer before delivery repeats the command.

    The id is unique, because the process of an earlier test may still mark its commands.
    """
    monkeypatch.setattr(store, "MARK_PUBLISHED_DELAY_SECONDS", 60.0)
    before = utc_now() - timedelta(seconds=4)
    await issue(world, command(505, created_at=before))
    await world.database["commands"].update_many({}, {"$set": {"unpublished": True}})
    await world.say(sn, {"commandId": 505, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    said = subjects(await world.said())
    assert said == ["task.505.created", "task.505.finished", "device.7.reported"]


async def test_the_events_of_a_reply_are_published_after_a_failure(
    world: World, sn: str, monkeypatch: pytest.MonkeyPatch
):
    """The reply is stored and counted once."""
    await issue(world, command(5))
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    messages = await world.fetch(1)
    with monkeypatch.context() as patched:
        patched.setattr(ingest, "publish_each", AsyncMock(side_effect=Unavailable("away")))
        patched.setattr(world.first.ingest, "_is_healthy", AsyncMock(return_value=False))
        with pytest.raises(Unavailable):
            await world.first.ingest.handle(messages)
    assert (await state(world, 5)).status == "SUCCESS"
    assert await world.said() == []
    await world.first.ingest.handle(messages)
    assert subjects(await world.said()) == ["task.5.finished", "device.7.reported"]
    assert [row["p"] for row in await world.stored()] == [{"interval": 5}]
    assert await world.totals() == LedgerTotals(stored=1, rejected=0)


async def test_a_refused_reply_does_not_affect_others_of_its_transaction(world: World, sn: str):
    call = {"serviceId": "reboot", "inputs": {}}
    await issue(world, command(5), command(6, kind="CALL_SERVICE", payload=call), command(7))
    for number, outputs in ((5, None), (6, {"unknown": 1}), (7, None)):
        body = {"commandId": number, "status": "SUCCESS", "outputs": outputs}
        await world.say(sn, body, "reply")
    await world.deal(3)
    states = [(await state(world, number)).status for number in (5, 6, 7)]
    assert states == ["SUCCESS", "PENDING", "SUCCESS"]
    assert len(await world.reasons()) == 1
    assert await world.totals() == LedgerTotals(stored=2, rejected=1)


async def test_a_new_command_is_not_written_to_the_outbox(world: World, sn: str):
    """A new command publishes its event and messages."""
    subscription = await world.bus.client.subscribe("thing.SN7.down.command")
    one = command(5)
    await world.write([one], new_command_entries(one))
    assert b'"commandId":5' in (await subscription.next_msg(timeout=5)).data
    assert subjects(await world.said()) == ["task.5.created"]
    assert await world.database["outbox"].count_documents({}) == 0
    await subscription.unsubscribe()
