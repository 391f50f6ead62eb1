"""Simulated sensors, and payloads that they send.

Uplinks that a codec reads: found by searching its decoder, for codecs say nothing of them.

A decoder compares bytes with numbers that stand in its scripts, so heads are made of those. What it
reads without a fault of the TSL is shortened to the bytes that count, put together, and varied.
"""

import itertools
import random
import re
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deploy.platform.errors import CommandError
from libs.common.clock import now_ms
from libs.common.tsl import TslDocument, compile_tsl
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import DecodeResult, check_decoded_frame
from services.device.lorawan.codec_worker import Call
from services.device.things.codec_model import Codec

_PORTS = (85, 2, 1)
"""Ports that are tried after those of the codec's examples: the first with uplinks counts."""
_NUMBER = re.compile(r"\b0x([0-9a-fA-F]{1,2})\b|\b(\d{1,3})\b")
_BATCH = 500
_MOST_HEADS = 4096
_TAILS = (1, 2, 4, 8, 24)
"""Bytes after a head: as few as a decoder wants that refuses more, and more than values have."""
_LONGEST = 51
"""Bytes that every data rate of EU868 carries."""
_SEARCH_SECONDS = 20.0
_POOL = 48
"""Uplinks that are kept ready of a product."""
_TRIES = 6
"""Changes of an uplink that are tried at a time."""


class Uplink(NamedTuple):
    """Bytes for a port."""

    port: int
    content: bytes


class Reader:
    """Decodes uplinks of a product as the platform does: by its decoder, then by its TSL."""

    def __init__(self, workers: CodecWorkers, codec: Codec, document: TslDocument) -> None:
        self.codec = codec
        self._workers = workers
        self._tsl = compile_tsl(document)
        self._declared = {one.id for one in document.properties}
        self.measured = {one.id for one in document.properties if one.access_mode == "R"}

    async def read(self, uplinks: Sequence[Uplink], at: int | None = None) -> list[DecodeResult]:
        """Read uplinks that come at `at` (ms), or now."""
        at = now_ms() if at is None else at
        calls = [Call("decode", one.content, one.port, at) for one in uplinks]
        outcomes = await self._workers.run("simulated", self.codec, calls)
        return [check_decoded_frame(self.codec, one, self._tsl, at, at) for one in outcomes]

    async def keys(self, uplinks: Sequence[Uplink]) -> list[frozenset[str]]:
        """Return the properties of each uplink; none for rejected ones and past readings.

        Values that the TSL does not declare do not make an uplink faulty.
        """
        return [
            frozenset() if self._faulty(one) else frozenset(one.properties)
            for one in await self.read(uplinks)
        ]

    def _faulty(self, one: DecodeResult) -> bool:
        paths = (fault.path.split(".") for fault in one.faults)
        declared = any(self._declared.intersection(path) for path in paths)
        return bool(declared or one.reason or one.past)


async def find_uplinks(
    reader: Reader, examples: Sequence[Uplink], rng: random.Random
) -> list[Uplink]:
    """Uplinks of a sensor, each near the one before; together they have many of its properties.

    Raises `CommandError` when none is found that is read without a fault.
    """
    known = [one for one, keys in zip(examples, await reader.keys(examples), strict=True) if keys]
    parts = await _parts(reader, [one.port for one in examples], rng)
    whole = await _whole(reader, parts)
    found = [*whole, *known, *parts]
    if not found:
        raise CommandError("no uplink was found that its codec reads: give the codec an example")
    return await _varied(reader, found, rng)


async def _parts(reader: Reader, ports: Iterable[int], rng: random.Random) -> list[Uplink]:
    """The shortest uplinks for each set of properties that is found."""
    numbers, until = _numbers(reader.codec), time.monotonic() + _SEARCH_SECONDS
    for port in dict.fromkeys((*ports, *_PORTS)):
        found: dict[frozenset[str], Uplink] = {}
        tries = (Uplink(port, one) for one in _tries(numbers, rng))
        while batch := list(itertools.islice(tries, _BATCH)):
            for keys, one in zip(await reader.keys(batch), batch, strict=True):
                if keys:
                    found.setdefault(keys, one)
            if time.monotonic() > until:
                break
        if found:
            return [await _shortest(reader, one) for one in found.values()]
    return []


def _numbers(codec: Codec) -> list[int]:
    """Return the bytes that the scripts of a decoder contain as literals."""
    texts = {step.script: codec.scripts[step.script] for step in codec.decoder}.values()
    found = (int(a, 16) if a else int(b) for text in texts for a, b in _NUMBER.findall(text))
    return sorted(set(found) & set(range(256)))


def _tries(numbers: Sequence[int], rng: random.Random) -> Iterator[bytes]:
    """Heads of one byte and of two with tails of chance, of ones and of zeros; then any numbers."""
    pairs = list(itertools.product(numbers, repeat=2))
    if len(pairs) > _MOST_HEADS:
        pairs = rng.sample(pairs, _MOST_HEADS)
    for head in (*((one,) for one in numbers), *pairs):
        yield bytes(head) + bytes(rng.randint(1, 60) for _ in range(_TAILS[-1]))
        yield bytes(head) + bytes([1]) * _TAILS[-1]
        for size in _TAILS:
            yield bytes(head) + bytes(size)
    for _ in range(_MOST_HEADS):
        yield bytes(rng.choices(numbers, k=rng.choice(_TAILS)))


async def _shortest(reader: Reader, one: Uplink) -> Uplink:
    """The shortest beginning of an uplink that is read like all of it."""
    starts = [one._replace(content=one.content[:size]) for size in range(1, len(one.content) + 1)]
    readings = [judged.properties for judged in await reader.read(starts)]
    return starts[readings.index(readings[-1])]


async def _whole(reader: Reader, parts: Sequence[Uplink]) -> list[Uplink]:
    """One uplink of as many measured properties as fit, as a sensor sends them."""
    keys = await reader.keys(parts)
    measured = [one for one, has in zip(parts, keys, strict=True) if has & reader.measured]
    if not measured:
        return []
    whole, has = Uplink(measured[0].port, b""), frozenset[str]()
    for part in measured:
        longer = whole._replace(content=whole.content + part.content)
        (more,) = await reader.keys([longer])
        if len(longer.content) <= _LONGEST and more > has:
            whole, has = longer, more
    return [whole]


async def _varied(reader: Reader, found: Sequence[Uplink], rng: random.Random) -> list[Uplink]:
    """A pool: the first ones found, then each near one before it, with the same properties."""
    pool = list(found[:_POOL])
    latest = list(pool)
    for turn in range(_POOL - len(pool)):
        place = 0 if turn % 4 else (turn // 4) % len(latest)
        one = latest[place]
        tries = [one, *(_changed(one, rng) for _ in range(_TRIES))]
        has, *others = await reader.keys(tries)
        latest[place] = next(
            (new for new, keys in zip(tries[1:], others, strict=True) if keys == has), one
        )
        pool.append(latest[place])
    return pool


def _changed(one: Uplink, rng: random.Random) -> Uplink:
    """The same with one byte a little otherwise."""
    content = bytearray(one.content)
    place = rng.randrange(len(content))
    content[place] = (content[place] + rng.choice((-3, -2, -1, 1, 2, 3))) % 256
    return one._replace(content=bytes(content))


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
