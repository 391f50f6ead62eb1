"""Simulated sensors as a network server knows them: identity, session, counter, queue."""

import random
import zlib
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from deploy.local.lorawan.payloads import Uplink

_LOCAL = 0x02
"""First byte of an EUI that nobody was assigned: it is locally administered."""


def dev_eui(server: str, model: str, number: int) -> str:
    """The DevEUI of the `number`th sensor of a product at a server, always the same one."""
    return f"{_LOCAL:02X}{zlib.crc32(f'{server} {model}'.encode()):08X}{number:06X}"


class Queued(NamedTuple):
    """A downlink that waits at the server for the sensor to listen."""

    name: str
    """What the platform calls it."""
    uplink: Uplink
    confirmed: bool


class Gateway(NamedTuple):
    """How a gateway heard a sensor: dBm and dB."""

    eui: str
    rssi: int
    snr: float


class Radio(NamedTuple):
    """How an uplink came."""

    gateways: list[Gateway]
    spreading: int
    frequency: int
    """Hz."""


_GATEWAYS = ("02a0b1c2d3e4f501", "02a0b1c2d3e4f502", "02a0b1c2d3e4f503")
_CHANNELS = (868_100_000, 868_300_000, 868_500_000)


@dataclass
class Sensor:
    """A sensor of class A: it listens after each uplink, and takes one downlink then."""

    eui: str
    model: str
    uplinks: list[Uplink]
    """What it says, in turn."""
    rng: random.Random
    address: str = ""
    counter: int = 0
    queue: deque[Queued] = field(default_factory=deque)
    heard: Queued | None = None
    """The downlink that it took after its last uplink."""
    turn: int = 0

    def join(self) -> None:
        """Begin a session: another address, and counters from 0."""
        self.address = f"{self.rng.getrandbits(32):08x}"
        self.counter = 0

    def next_uplink(self) -> Uplink:
        """What it says now."""
        self.turn += 1
        return self.uplinks[self.turn % len(self.uplinks)]

    def radio(self) -> Radio:
        """Through one gateway, or two of them, as it is placed."""
        near = self.rng.sample(_GATEWAYS, self.rng.choice((1, 1, 2)))
        heard = [
            Gateway(one, self.rng.randint(-115, -60), self.rng.randint(-40, 110) / 10)
            for one in near
        ]
        return Radio(heard, self.rng.choice((7, 7, 8, 9)), self.rng.choice(_CHANNELS))
