"""Frames that an integration hands over, as they reach ingest."""

from typing import Any

import msgspec
import pytest
from nats.aio.msg import Msg

from libs.common.bus import OutgoingMessage
from libs.common.bus.subjects import uplink_subject
from libs.common.contracts.frames import DeviceFrame, Frame, Reception, SendFrames
from services.device.lorawan.rpc import MAX_UNCHANGED_FRAME_BYTES, FrameRpc, SendRawFrames
from services.device.telemetry.batch import build_batch
from services.device.telemetry.uplink import read_uplink
from services.device.things.model import Thing
from tests.unit.device.things.examples import thing

FRAME = Frame(port=2, data=b"\1", counter=3, gateways=[Reception(gateway="g", rssi=-90.5)])
SENSOR = thing(sn="F-1", integration="lora", tenant="t")


def told(tenant: str = "t", identifier: str = "F-1") -> DeviceFrame:
    return DeviceFrame(tenant=tenant, identifier=identifier, frame=FRAME)


def call(*frames: DeviceFrame) -> bytes:
    return msgspec.json.encode(SendFrames(frames=list(frames)))


class Bus:
    """Notes what is published, and which devices were heard."""

    def __init__(self) -> None:
        self.published: list[OutgoingMessage] = []
        self.heard: list[str] = []
        self.lives: list[float] = []

    async def publish(self, messages: list[OutgoingMessage]) -> None:
        self.published += messages

    async def record_contacts(self, things: Any) -> None:
        self.heard += [one.sn for one in things]

    async def find_by_sn(self, sns: set[str], life: float) -> dict[str, Thing]:
        self.lives.append(life)
        return {sn: SENSOR for sn in sns if sn == "F-1"}


@pytest.fixture
def bus() -> Bus:
    return Bus()


async def tell(bus: Bus, raw: bytes) -> list[int]:
    """Hand frames over as an integration does; return which are refused."""
    collaborators: Any = {"bus": bus, "directory": bus, "presence": bus, "devices": bus}
    sent = msgspec.json.decode(raw, type=SendRawFrames)
    answer = await FrameRpc(**collaborators).publish_frames("lora", sent)
    return [one.index for one in answer.refused]


async def test_a_frame_is_published_as_it_came(bus: Bus):
    """Those of devices that the integration does not have are refused."""
    refused = await tell(bus, call(told(), told(tenant="other"), told(identifier="F-2")))
    assert refused == [1, 2]
    assert [(one.subject, one.payload) for one in bus.published] == [
        (uplink_subject("F-1", "frame"), msgspec.json.encode(FRAME))
    ]
    assert bus.heard == ["F-1"]


async def test_a_large_frame_is_published_without_what_nobody_reads(bus: Bus):
    raw = call(told()).replace(
        b'"port"', b'"more": "%s", "port"' % (b"x" * MAX_UNCHANGED_FRAME_BYTES)
    )
    assert await tell(bus, raw) == []
    assert bus.published[0].payload == msgspec.json.encode(FRAME)


@pytest.mark.parametrize(
    ("old", "new"), [(b'"port":2', b'"port":"x"'), (b'"port":2', b'"x":2'), (b'"g"', b'"\xff"')]
)
async def test_a_frame_that_is_none_refuses_its_call_and_says_where(
    bus: Bus, old: bytes, new: bytes
):
    good = call(told(), told())
    at = good.rindex(old)
    raw = good[:at] + new + good[at + len(old) :]
    with pytest.raises(msgspec.DecodeError, match=r"at `\$\.frames\[1\]\.frame"):
        await tell(bus, raw)
    assert bus.published == []


@pytest.mark.parametrize(
    ("owner", "taken"), [({}, True), ({"tenant": "u"}, False), ({"integration": "direct"}, False)]
)
async def test_ingest_refuses_a_frame_of_a_device_that_has_changed_hands(
    bus: Bus, owner: dict[str, str], taken: bool
):
    """Its SN is another device's now; a frame without headers comes from an earlier version."""
    await tell(bus, call(told()))
    (sent,) = bus.published
    reply = "$JS.ACK.UPLINK.ingest.1.5.5.1700000000000000000.0"
    new = thing(**{"sn": "F-1", "integration": "lora", "tenant": "t", **owner})
    for headers in (sent.headers, None):
        message = Msg(None, subject=sent.subject, reply=reply, data=sent.payload, headers=headers)  # type: ignore[arg-type]
        batch = build_batch([read_uplink(message)], {"F-1": new}, 10**15)
        if taken or headers is None:
            assert [one for _, one in batch.undecoded] == [new]
        else:
            assert [(one.reason, one.thing) for one in batch.rejected] == [
                ("the device has a new owner", None)
            ]
