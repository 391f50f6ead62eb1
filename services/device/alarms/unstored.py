"""What a device has said that is not stored yet: nothing that came later is decided before it.

`UPLINK` and its partitions hold a message until it is stored. What a process of ingest that died
had in hand stays there until another one gets it, while newer reports are stored already.
"""

import asyncio
from collections.abc import Container, Iterable
from datetime import datetime
from typing import NamedTuple

import msgspec
from nats.errors import Error as NatsError

from libs.common.bus import Bus
from libs.common.bus.streams import UPLINK, UPLINKS, uplink_streams
from libs.common.bus.subjects import partitioned, up
from libs.common.clock import to_ms
from libs.common.errors import Unavailable
from services.device.telemetry.uplink import MQTT_PREFIX, PARTITION_BITS, sequence_in

NOT_FOUND = 404
TIMEOUT = 5.0
"""Seconds."""


class Unstored(NamedTuple):
    """A message that is not acknowledged."""

    sequence: int
    """Of all partitions together."""
    received: int
    """ms."""


class _Message(msgspec.Struct):
    seq: int
    time: datetime


class _Fault(msgspec.Struct):
    code: int
    description: str = ""


class _Answer(msgspec.Struct):
    message: _Message | None = None
    error: _Fault | None = None


_read = msgspec.json.Decoder(_Answer).decode


class UplinkReader:
    """Looks into `UPLINK` and its `partitions`; one per process."""

    def __init__(self, bus: Bus, partitions: int) -> None:
        self._bus = bus
        self._streams = uplink_streams(partitions)

    async def first(
        self, sn: str, after: int, near: Iterable[int], stored: Container[int]
    ) -> Unstored | None:
        """The oldest message of a device that may not be stored, behind the sequence `after`.

        It is looked for where the sequences of `near` are, and everywhere when there is none.
        Raises `Unavailable`.
        """
        streams = {UPLINKS[one >> PARTITION_BITS] for one in near if one} or self._streams
        found = await asyncio.gather(
            *(
                self._first(stream, subject, after, stored)
                for stream in streams
                for subject in _subjects(stream, sn)
            )
        )
        return min((one for one in found if one is not None), default=None)

    async def _first(
        self, stream: str, subject: str, after: int, stored: Container[int]
    ) -> Unstored | None:
        sequence = max(after - sequence_in(stream, 0), 0)
        while True:
            request = {"seq": sequence + 1, "next_by_subj": subject}
            answer = await self._ask(stream, request)
            if answer is None:
                return None
            sequence = answer.seq
            if (known := sequence_in(stream, sequence)) not in stored:
                return Unstored(known, to_ms(answer.time))

    async def _ask(self, stream: str, request: dict[str, object]) -> _Message | None:
        subject, body = f"$JS.API.STREAM.MSG.GET.{stream}", msgspec.json.encode(request)
        try:
            answer = _read((await self._bus.client.request(subject, body, TIMEOUT)).data)
        except (NatsError, TimeoutError) as error:
            raise Unavailable(f"{stream} cannot be read: {error!r}") from error
        if answer.error is not None and answer.error.code != NOT_FOUND:
            raise Unavailable(f"{stream}: {answer.error.description}")
        return answer.message


def _subjects(stream: str, sn: str) -> tuple[str, str]:
    """What a device says, plainly and over MQTT with QoS 1."""
    said = up(sn, ">") if stream == UPLINK else partitioned(sn, "*", UPLINKS.index(stream) - 1)
    return said, MQTT_PREFIX + said
