"""A command's end: answered once in effect, or expired."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from unittest.mock import AsyncMock

import pytest
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import NotFoundError

from libs.common.bus import OutboxEntry
from libs.common.bus.streams import MQTT
from libs.common.contracts.events import DeviceProfile
from services.device.commands.completion import CommandCanceller, CommandCompletion
from services.device.commands.delivery import Delivery
from services.device.commands.events import command_messages, created_entries
from services.device.commands.model import DELETED, REMOVED, Command, SentDownlink, utc_now
from services.device.commands.service import describe
from services.device.commands.write_only import LATE, CommandWiper
from services.device.telemetry.ledger import Totals
from services.device.telemetry.uplink import Uplink
from services.device.things.model import Thing
from tests.carrier import NoCarrier
from tests.integration.device.telemetry.world import World


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
    """SUCCESS records the properties, however often the reply is delivered."""
    await issue(world, command(5))
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    messages = await world.fetch(1)
    for process in (world.first, world.first, world.process()):
        await process.ingest.handle(messages)
    assert (await state(world, 5)).status == "SUCCESS"
    assert [row["p"] for row in await world.stored()] == [{"interval": 5}]
    assert await world.latest_of(7) == {"interval": 5}
    assert subjects(await world.said()) == ["task.5.finished", "device.7.reported"]
    assert await world.totals() == Totals(stored=1, rejected=0)
    assert await world.database["outbox"].count_documents({}) == 0


async def test_of_answers_that_come_together_the_last_says_what_holds(
    world: World, sn: str, monkeypatch
):
    """Replies of one thing apply one after another, also of one batch and one millisecond."""
    last, busy, overlaps = 10, set(), []
    close = CommandCompletion.close_by_reply

    async def alone(self: CommandCompletion, uplink: Uplink, thing: Thing) -> str | None:
        overlaps.extend({thing.id} & busy)
        busy.add(thing.id)
        reason = await close(self, uplink, thing)
        busy.discard(thing.id)
        return reason

    monkeypatch.setattr(CommandCompletion, "close_by_reply", alone)
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
    assert await world.commands.profile(7) == {"level": last}


async def test_who_sees_an_update_succeed_finds_its_values(world: World, sn: str, monkeypatch):
    """The latest values are written before the command shows its SUCCESS."""
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


async def test_one_reply_in_two_processes_at_once_is_counted_once(world: World, sn: str):
    """A redelivered reply that overlaps with its first delivery closes and counts once."""
    other = world.process()
    for number in range(1, 21):
        await issue(world, command(number))
        await world.say(sn, {"commandId": number, "status": "SUCCESS"}, "reply")
        messages = await world.fetch(1)
        await asyncio.gather(world.first.ingest.handle(messages), other.ingest.handle(messages))
        assert await world.totals() == Totals(stored=number, rejected=0)
    assert len(await world.stored()) == 20
    assert len(await world.said()) == 40


async def test_a_repeated_reply_is_taken_and_changes_nothing(world: World, sn: str):
    """A command that was sent twice may be answered twice; the first answer stands."""
    await issue(world, command(5))
    await world.say(sn, {"commandId": "5", "status": "SUCCESS"}, "reply")
    await world.say(sn, {"commandId": 5, "status": "FAILED"}, "reply")
    first, second = await world.fetch(1), await world.fetch(1)
    for batch in (first, second, second):
        await world.first.ingest.handle(batch)
    assert (await state(world, 5)).status == "SUCCESS"
    assert await world.totals() == Totals(stored=2, rejected=0)
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
async def test_a_reply_to_nothing_is_refused_with_a_reason(
    world: World, sn: str, body: Any, word: str
):
    """Garbage, unknown commands and those of other devices end in DEAD, and close nothing."""
    await issue(world, command(5), command(6, thing=8))
    await world.say(sn, body, "reply")
    await world.deal(1)
    (reason,) = await world.reasons()
    assert word in reason
    assert await world.totals() == Totals(stored=0, rejected=1)
    assert {(await state(world, number)).status for number in (5, 6)} == {"PENDING"}


async def test_outputs_of_a_service_are_checked(world: World, sn: str):
    """Good outputs are kept; a reply with bad ones is refused whole, a good one still counts."""
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


async def test_profiles_confirmed_at_once_are_all_kept(world: World, sn: str):
    """Replies to several profile commands of one device do not lose one another's values."""
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
    assert await world.commands.profile(7) == {f"k{n}": n for n in numbers}


def delivery(world: World) -> Delivery:
    return Delivery(
        devices=world.first.devices,
        bus=world.bus,
        commands=world.commands,
        carrier=NoCarrier(),
    )


def wiper(world: World) -> CommandWiper:
    return CommandWiper(world.commands.write_only, world.bus)


def secret_command(number: int) -> Command:
    """Return a command that sets a write-only value beside one that can be read."""
    return command(
        number,
        payload={"properties": {"interval": number}},
        sealed={"properties": {"interval": number, "pin": f"s3cret-{number}"}},
        write_only=["pin"],
        status="SENT",
    )


async def issue_all(world: World, *commands: Command) -> None:
    """Write commands with what they say."""
    await world.write(commands, [entry for one in commands for entry in created_entries(one)])


@pytest.fixture
async def away(world: World) -> AsyncIterator[None]:
    """Let a session exist that is away, so that nats-server keeps messages."""
    js = world.bus.js
    await js.purge_stream(MQTT)
    consumer = ConsumerConfig(durable_name="away", ack_policy=AckPolicy.EXPLICIT)
    await js.add_consumer(MQTT, consumer)
    yield
    await js.delete_consumer(MQTT, "away")


async def kept_for_mqtt(world: World) -> list[str]:
    """Return the messages that nats-server keeps for MQTT sessions of devices."""
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
    """Return all documents of the database and all messages of streams that are kept, as text."""
    texts = await kept_for_mqtt(world)
    texts += [repr(entry) for entry in await world.said()]
    for name in await world.database.list_collection_names():
        texts += [repr(one) for one in await world.database[name].find().to_list(None)]
    return "\n".join(texts)


async def test_write_only_values_are_wiped_when_their_command_is_closed(
    world: World, sn: str, away: None
):
    """Those of open commands stay, since they are still to be delivered."""
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
    """A process may have read the command when it was open."""
    late = secret_command(5)
    await issue_all(world, late)
    await world.commands.end(late, "FAILED", "the device said s3cret-5")
    await wiper(world).wipe("default", utc_now())
    await world.outbox.relay(await added(world, command_messages(late)))
    assert "s3cret-5" in await everything(world)

    await wiper(world).wipe("default", utc_now() + LATE)

    assert "s3cret-5" not in await everything(world)
    assert (
        await world.commands.write_only.list_to_wipe("default", utc_now() + timedelta(days=1)) == []
    )


async def added(world: World, entries: list[OutboxEntry]) -> list[dict[str, Any]]:
    return await world.mongo.transaction(lambda session: world.outbox.add(entries, session))


async def test_the_outbox_does_not_publish_write_only_values_of_a_closed_command(
    world: World, sn: str, away: None
):
    """Entries of other commands in the same document are published."""
    closed, still_open = secret_command(5), secret_command(6)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(world.outbox, "relay", AsyncMock())
        await issue_all(world, closed, still_open)
        await world.commands.end(closed, "TIMEOUT", None)
    assert "s3cret-5" not in await everything(world)

    await world.outbox.relay(await world.database["outbox"].find().to_list(None))

    kept = "".join(await kept_for_mqtt(world))
    assert "s3cret-5" not in kept
    assert "s3cret-6" in kept


async def test_a_command_that_a_backup_left_without_its_values_fails(world: World, sn: str):
    await issue(world, secret_command(5))
    await world.database["commands"].update_one(
        {"_id": 5}, {"$unset": {"sealed": ""}, "$set": {"nextSendAt": utc_now()}}
    )

    await delivery(world).deliver("default")

    ended = await state(world, 5)
    assert (ended.status, ended.error_code) == ("FAILED", "values_not_restored")


async def test_bytes_of_a_closed_command_with_write_only_values_are_wiped(world: World, sn: str):
    coded = secret_command(5)
    await issue(world, coded)
    made = [SentDownlink(port=85, data=b"s3cret-5")]
    coded.downlinks = await world.commands.coded.store_downlinks(coded, made)
    await world.commands.end(coded, "SUCCESS", None)

    assert "s3cret-5" not in await everything(world)
    assert await world.commands.coded.store_downlinks(coded, made) == []


async def test_nothing_secret_waits_in_nats_for_a_device_that_is_away(
    world: World, sn: str, away: None
):
    """It is sent when the device connects."""
    await issue_all(world, secret_command(5))
    await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})

    await delivery(world).deliver("default")
    await wiper(world).wipe("default", utc_now())

    assert await kept_for_mqtt(world) == []
    assert (await state(world, 5)).sealed is not None
    assert (
        await world.commands.write_only.list_to_wipe("default", utc_now() + timedelta(days=1)) == []
    )


async def test_due_commands_of_one_tenant_do_not_delay_those_of_others(world: World, sn: str):
    """A thousand commands of another tenant have been due for longer."""
    await issue(world, command(5))
    document = await world.database["commands"].find_one({"_id": 5})
    before = utc_now() - timedelta(seconds=60)
    loud = [document | {"_id": n, "tenant": "loud", "nextSendAt": before} for n in range(6, 1006)]
    await world.database["commands"].insert_many(loud)
    await world.database["commands"].update_one({"_id": 5}, {"$set": {"nextSendAt": utc_now()}})
    assert await world.commands.tenants_due() == ["default", "loud"]
    assert await delivery(world).deliver("default") == 1
    assert await world.commands.tenants_due() == ["loud"]


async def test_a_command_that_nobody_answers_ends_as_timeout(world: World, sn: str):
    """TIMEOUT is written and said once; an answer after it is refused."""
    over = utc_now() - timedelta(seconds=1)
    await issue(world, command(5, created_at=over - timedelta(seconds=9), expires_at=over))
    for _ in range(2):
        await delivery(world).deliver("default")
    assert (await state(world, 5)).status == "TIMEOUT"
    ((subject, body),) = await world.said()
    assert (subject, body["status"]) == ("event.default.task.5.finished", "TIMEOUT")
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    (reason,) = await world.reasons()
    assert "expired" in reason
    assert (await state(world, 5)).status == "TIMEOUT"
    assert await world.totals() == Totals(stored=0, rejected=1)


async def test_open_commands_of_a_device_that_leaves_end_once(world: World, sn: str):
    """FAILED, with the code and the reason; what has ended stays, and a late answer is refused."""
    call: dict[str, Any] = {
        "kind": "CALL_SERVICE",
        "payload": {"serviceId": "reboot", "inputs": {}},
    }
    await issue(world, command(4), command(5), command(6, **call), command(9, thing=8))
    await world.say(sn, {"commandId": 4, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    for _ in range(2):
        await world.commands.fail_all(7, DELETED)
    for number in (5, 6):
        task = describe(await state(world, number))
        found = (task.status, task.err_code, task.err_msg)
        assert found == ("FAILED", "device_deleted", "the device was deleted")
    assert [(await state(world, number)).status for number in (4, 9)] == ["SUCCESS", "PENDING"]
    said = subjects(await world.said())
    assert (said.count("task.5.finished"), said.count("service.7.replied")) == (1, 1)
    await world.say(sn, {"commandId": 5, "status": "SUCCESS"}, "reply")
    await world.deal(1)
    assert (await state(world, 5)).status == "FAILED"


async def test_what_waits_for_the_mqtt_session_of_a_device_that_leaves_is_taken_back(
    world: World, sn: str
):
    """Its next owner's device is not told what the one before asked; others are."""
    js, consumer = world.bus.js, ConsumerConfig(durable_name="away", ack_policy=AckPolicy.EXPLICIT)
    await js.purge_stream(MQTT)
    await js.add_consumer(MQTT, consumer)
    for one in (command(5), command(6, thing=8)):
        await world.write([one], created_entries(one))
    await CommandCanceller(world.commands, world.bus).end(
        await world.first.devices.find_by_id(7), REMOVED
    )
    kept = (await js.stream_info(MQTT, subjects_filter=">")).state.subjects
    await js.delete_consumer(MQTT, "away")
    assert kept == {"$MQTT.msgs.thing.SN8.down.command": 1}
    assert (await state(world, 5)).status == "FAILED"


async def test_what_no_device_will_answer_ends_when_it_is_due(world: World, sn: str):
    """Also where nobody ended it: the device is gone, or another application's by now."""
    await world.add(8, application={"applicationId": 2})
    users = command(3, thing=8, application_id=None, user_id=1)
    await issue(world, command(4), command(5, thing=8), command(6, thing=99), users)
    await world.database["commands"].update_many({}, {"$set": {"nextSendAt": utc_now()}})
    await delivery(world).deliver("default")
    rows = await world.database["commands"].find().sort("_id", 1).to_list(None)
    assert [(row["_id"], row["status"], row.get("errorCode")) for row in rows] == [
        (3, "PENDING", None),
        (4, "PENDING", None),
        (5, "FAILED", "device_removed"),
        (6, "FAILED", "device_deleted"),
    ]


async def test_a_reply_that_races_with_expiry_ends_the_command_once(world: World, sn: str):
    """Either the answer or the timeout wins; there is one closing event, and the count fits."""
    for number in range(1, 16):
        over = utc_now()
        await issue(world, command(number, created_at=over - timedelta(seconds=9), expires_at=over))
        await world.say(sn, {"commandId": number, "status": "SUCCESS"}, "reply")
        messages = await world.fetch(1)
        await asyncio.gather(
            world.first.ingest.handle(messages), delivery(world).deliver("default")
        )
    said = subjects(await world.said())
    totals, stored = await world.totals(), len(await world.stored())
    ends = [(await state(world, number)).status for number in range(1, 16)]
    assert [said.count(f"task.{number}.finished") for number in range(1, 16)] == [1] * 15
    assert ends.count("SUCCESS") == stored == totals.stored
    assert ends.count("TIMEOUT") == totals.rejected == len(await world.reasons())


async def test_a_connected_device_is_sent_a_command_again_with_growing_pauses(
    world: World, sn: str
):
    """Each sending comes later than the last; commands of absent devices rest."""
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
        await delivery(world).deliver("default")
        await asyncio.wait_for(arrived.acquire(), 10)
        assert len(heard) == sending
        row = await world.database["commands"].find_one({"_id": 5})
        pauses.append((row["nextSendAt"] - utc_now()).total_seconds())
    assert pauses == sorted(pauses)
    assert pauses[0] > 3
    resting = await world.database["commands"].find_one({"_id": 6})
    assert resting["nextSendAt"] == resting["expiresAt"]
    await subscription.unsubscribe()


async def test_a_device_that_comes_back_is_sent_its_commands_at_once(world: World, sn: str):
    """Waking makes open commands due, oldest first, whatever their ids."""
    early = utc_now() - timedelta(minutes=5)
    await issue(world, command(9, created_at=early), command(3))
    await world.commands.suspend([await state(world, 9), await state(world, 3)])
    await world.database["devices"].update_one({"_id": 7}, {"$set": {"connectStatus": "ONLINE"}})
    subscription = await world.bus.client.subscribe("thing.SN7.down.command")
    await delivery(world).deliver("default")
    await world.commands.wake([7], utc_now())
    await delivery(world).deliver("default")
    sent = [(await subscription.next_msg(timeout=5)).data for _ in range(2)]
    assert [b'"commandId":9' in sent[0], b'"commandId":3' in sent[1]] == [True, True]
    await subscription.unsubscribe()


async def test_a_command_that_lives_shortly_expires_in_time(world: World, sn: str):
    """The first look at a command is not after its end."""
    await issue(world, command(5, expires_at=utc_now() + timedelta(seconds=1)))
    row = await world.database["commands"].find_one({"_id": 5})
    assert row["nextSendAt"] == row["expiresAt"]


async def test_what_is_written_is_said_and_the_outbox_is_empty(world: World, sn: str):
    """Writing a command says its event and sends it, to stream and to listeners."""
    subscription = await world.bus.client.subscribe("thing.SN7.down.command")
    one = command(5)
    await world.write([one], created_entries(one))
    assert b'"commandId":5' in (await subscription.next_msg(timeout=5)).data
    assert subjects(await world.said()) == ["task.5.created"]
    assert await world.database["outbox"].count_documents({}) == 0
    await subscription.unsubscribe()
