"""What a frame is, and which frames are the same one. No I/O.

A frame is (device, session, counter). The counter of a device that joins by its keys (ABP) may
begin anew in the same session: what comes more than a day away from its namesake is another frame,
of another lap.
"""

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from services.device.telemetry.batch import KeptFrame
from services.device.telemetry.partitions import DAY_MS, KEY
from services.device.telemetry.uplink import Uplink

_NAME = struct.Struct(">Q8sI")
_LAP = struct.Struct(">H")
SAME_MS = DAY_MS
"""How far apart copies of a frame may be received."""


def name_of(frame: KeptFrame) -> bytes:
    """The device, session and counter of a frame."""
    session = blake2b(frame.frame.session.encode(), digest_size=8).digest()
    return _NAME.pack(frame.thing.id, session, frame.frame.counter)


def identity(name: bytes, lap: int) -> bytes:
    """What no other frame has."""
    return name + _LAP.pack(lap)


class StoredFrame(NamedTuple):
    """A frame that is stored."""

    identity: bytes
    key: bytes

    @property
    def name(self) -> bytes:
        """Its device, session and counter."""
        return self.identity[: _NAME.size]


class CountedFrame(NamedTuple):
    """A frame as its counter tells it."""

    key: bytes
    ts: int
    """When it was received, ms."""
    session: bytes
    counter: int


def counted(key: bytes, name: bytes) -> CountedFrame:
    """The frame with a key and an identity."""
    _, session, counter = _NAME.unpack(name[: _NAME.size])
    return CountedFrame(key, KEY.unpack(key)[1], session, counter)


def names_between(thing_id: int, session: bytes, first: int, last: int) -> tuple[bytes, bytes]:
    """Bounds of the identities of frames with counters from `first` to `last`, of all laps."""
    low, high = (_NAME.pack(thing_id, session, one) for one in (first, last))
    return low + _LAP.pack(0), high + _LAP.pack(2**16 - 1)


def settle(
    frames: Iterable[KeptFrame], stored: Iterable[StoredFrame]
) -> tuple[list[KeptFrame], list[Uplink]]:
    """The frames with their laps, and the uplinks that repeat one of them or of `stored`.

    A stored one of the same uplink is the frame itself, which comes again.
    """
    known: dict[bytes, list[tuple[int, int, bytes]]] = {}
    for one in stored:
        (lap,) = _LAP.unpack(one.identity[_NAME.size :])
        ts = KEY.unpack(one.key)[1]
        known.setdefault(one.name, []).append((lap, ts, one.key))
    kept, repeated = list[KeptFrame](), list[Uplink]()
    for frame in frames:
        key, ts = frame.key, frame.ts
        laps = known.setdefault(name_of(frame), [])
        near = next((one for one in laps if one[2] == key), None) or next(
            (one for one in laps if abs(one[1] - ts) <= SAME_MS), None
        )
        if near is not None and near[2] != key:
            repeated.append(frame.uplink)
            continue
        lap = near[0] if near else max((one[0] for one in laps), default=-1) + 1
        if near is None:
            laps.append((lap, ts, key))
        kept.append(frame if lap == frame.lap else msgspec.structs.replace(frame, lap=lap))
    return kept, repeated
