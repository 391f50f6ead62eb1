"""What ingest asks of the packages above it, and in which order."""

from collections.abc import Sequence
from typing import Any

import pytest
from nats.aio.msg import Msg

from libs.common.bus.subjects import uplink_subject
from libs.common.contracts.frames import Frame
from services.device.telemetry import ingest as ingesting
from services.device.telemetry.batch import Batch, KeptFrame, build_batch
from services.device.telemetry.ingest import Ingest
from services.device.telemetry.ports import AlarmTrigger, CommandCloser, FrameDecoder
from services.device.telemetry.uplink import Uplink, read_uplink
from services.device.things.model import Thing
from tests.unit.device.things.examples import thing

NOW = 1_700_000_000_000
DIRECT, NETWORK, SLOW = (
    thing(id=1, sn="SN1"),
    thing(id=2, sn="SN2", integration="network"),
    thing(id=3, sn="SN3", integration="network", tenant="slow"),
)


class Fake(FrameDecoder, CommandCloser, AlarmTrigger):
    """Notes what it is asked; frames of the tenant `slow` are late unless they may wait."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def _note(self, step: str, result: Any = None) -> Any:
        async def noted(*_: Any, **__: Any) -> Any:
            self.asked.append(step)
            return result

        return noted

    async def decode(self, batch: Batch, *, wait: bool) -> set[str]:
        self.asked.append("decode")
        unread, batch.undecoded = batch.undecoded, []
        for uplink, one in unread:
            if one.tenant == "slow" and not wait:
                batch.undecoded.append((uplink, one))
            else:
                frame = Frame(data=b"\1", port=1, counter=1)
                batch.frames.append(KeptFrame(uplink, one, frame, NOW, "", 1))
        return {one.tenant for _, one in batch.undecoded}

    async def mark_stored_as_duplicates(self, batch: Batch) -> None:
        raise AssertionError

    def build_document(self, frame: KeptFrame) -> tuple[str, dict[str, Any]]:
        raise AssertionError

    async def close_by_replies(self, replies: Sequence[tuple[Uplink, Thing]], batch: Batch) -> None:
        self.asked += [f"reply of {thing.sn}" for _, thing in replies]

    async def confirm_by_reports(self, reports: Sequence[Any]) -> None:
        self.asked.append(f"confirm by {len(reports)}")

    async def refresh_rules(self) -> None:
        self.asked.append("rules")

    async def messages_for_batch(self, batch: Batch) -> list[Any]:
        self.asked.append("alarms")
        return []


def message(sequence: int, sn: str, channel: str, payload: bytes) -> Msg:
    reply = f"$JS.ACK.UPLINK.ingest.1.{sequence}.{sequence}.{NOW * 1_000_000}.0"
    return Msg(None, subject=uplink_subject(sn, channel), reply=reply, data=payload)  # type: ignore[arg-type]


def report(sequence: int, sn: str) -> Msg:
    return message(sequence, sn, "report", b'{"properties": {"interval": 5}}')


class _Things:
    async def find_by_sn(self, serials: Any) -> dict[str, Thing]:
        return {one.sn: one for one in (DIRECT, NETWORK, SLOW)}


class _Slow:
    """Lets messages of late tenants wait, as `SlowCodecs` does."""

    async def queue_slow(
        self, uplinks: Any, things: Any, refused: Any, late: Any = ()
    ) -> list[Uplink]:
        return [uplink for uplink in uplinks if things[uplink.sn].tenant not in late]


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def ingest(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> Ingest:
    """Ingest that stores and publishes nothing."""

    class Values:
        apply, update = fake._note("values"), fake._note("facts")
        update_report_times = fake._note("times")
        find_properties_beyond_limit = fake._note("limits", {})

        def may_exceed_limit(self, thing_id: int, size: int) -> bool:
            return False

    class Store:
        store = fake._note("store")

    class Nothing:
        def find_excess_and_block(self, uplinks: Any, things: Any) -> dict[int, Any]:
            return {}

        def build(self, batch: Batch) -> list[Any]:
            return []

    class Shapes:
        update = fake._note("shapes", {})

    async def acknowledge(client: Any, messages: Sequence[Msg]) -> None:
        fake.asked.append(f"acknowledge {len(messages)}")

    monkeypatch.setattr(ingesting, "publish_each", fake._note("publish"))
    monkeypatch.setattr(ingesting, "notify_waiting_senders", fake._note("notify"))
    monkeypatch.setattr(ingesting, "acknowledge", acknowledge)
    monkeypatch.setattr(ingesting, "SlowCodecQueue", lambda *_: _Slow())

    class Bus:
        client = None

    given: Any = {
        "bus": Bus(),
        "things": _Things(),
        "store": Store(),
        "latest": Values(),
        "device_fields": Values(),
        "shapes": Shapes(),
        "quota": Nothing(),
        "dead_messages": Nothing(),
    }
    return Ingest(**given, commands=fake, alarms=fake, frames=fake, retention_ms=10**15)


async def test_a_batch_is_stored_then_announced_then_acknowledged(ingest: Ingest, fake: Fake):
    """Replies come first, rules are read meanwhile; nothing is confirmed without frames."""
    reply = message(2, "SN1", "reply", b"{}")
    await ingest.handle([report(1, "SN1"), reply])
    assert fake.asked[0] == "reply of SN1"
    assert {"store", "shapes", "values", "times", "facts"} == set(fake.asked[1:7]) - {"rules"}
    assert "rules" in fake.asked[1:7]
    assert fake.asked[7:] == ["alarms", "publish", "publish", "acknowledge 2", "notify"]


async def test_reports_confirm_commands_after_the_alarms_of_a_batch_with_frames(
    ingest: Ingest, fake: Fake
):
    await ingest.handle([report(1, "SN1"), message(2, "SN2", "frame", b"{}")])
    fake.asked.remove("rules")
    assert fake.asked == [
        *("decode", "store", "shapes", "values", "times", "facts"),
        *("alarms", "publish", "publish", "confirm by 1", "acknowledge 2", "notify"),
    ]


async def test_messages_of_a_tenant_whose_codec_is_late_are_not_acknowledged(
    ingest: Ingest, fake: Fake
):
    """A batch that waits for its codecs is dealt with whole."""
    late = [message(1, "SN3", "frame", b"{}"), report(2, "SN3")]
    await ingest.handle([*late, report(3, "SN1"), message(4, "SN2", "frame", b"{}")])
    assert {"confirm by 1", "acknowledge 2"} <= set(fake.asked)
    fake.asked.clear()
    await ingest.handle(late, slow=True)
    assert {"confirm by 1", "acknowledge 2"} <= set(fake.asked)


def test_a_batch_keeps_only_some_uplinks():
    """Whatever became of the others."""
    bodies = {"report": b'{"properties": {"interval": 5}}', "event": b'{"eventId": "alarm"}'}
    channels = ["report", "event", "reply", "frame", "nonsense"]
    found = {one.sn: one for one in (DIRECT, NETWORK)}
    uplinks = [
        read_uplink(message(sequence, sn, channel, bodies.get(channel, b"{}")))
        for sequence, (sn, channel) in enumerate(
            [(sn, channel) for sn in ("SN1", "SN2") for channel in channels], 1
        )
    ]
    batch = build_batch(uplinks, found, 10**15)
    batch.frames = [
        KeptFrame(uplinks[at], one, Frame(data=b"", port=1, counter=1), NOW, "", 1)
        for at, one in ((3, DIRECT), (8, NETWORK))
    ]
    batch.duplicates = [uplinks[3], uplinks[8]]
    batch.keep_only(uplinks[5:])
    expected = build_batch(uplinks[5:], found, 10**15)
    for name in ("reports", "events", "replies", "undecoded", "rejected"):
        assert getattr(batch, name) == getattr(expected, name)
        assert getattr(batch, name), name
    assert [one.uplink for one in batch.frames] == batch.duplicates == [uplinks[8]]
