"""Simulated sensors, and payloads that a product's codec decodes.

Codecs do not describe their uplinks, so this module searches for payloads that a decoder accepts. A
decoder compares bytes with literals in its scripts, so candidates start with those bytes. Accepted
payloads are shortened to the bytes that matter, concatenated, and varied.
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
from services.device.lorawan.codec_calls import CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import DecodeResult, check_decoded_frame
from services.device.things.codec_model import Codec

_FALLBACK_PORTS = (85, 2, 1)
"""Ports to try after those of the codec's examples; the first successful port is used."""
_BYTE_LITERAL = re.compile(r"\b0x([0-9a-fA-F]{1,2})\b|\b(\d{1,3})\b")
_CANDIDATES_PER_BATCH = 500
_MAX_PREFIXES = 4096
_TAIL_LENGTHS = (1, 2, 4, 8, 24)
"""Numbers of bytes after the first ones of a candidate: few for strict decoders, and more than any
value needs."""
_MAX_PAYLOAD_BYTES = 51
"""Maximum bytes that fit into an uplink at every data rate of EU868."""
_MAX_SEARCH_SECONDS = 20.0
_UPLINKS_PER_PRODUCT = 48
"""Number of uplinks generated per product."""
_VARIATIONS_PER_UPLINK = 6
"""Number of variations of an uplink that are decoded together; the first valid one is used."""


class Uplink(NamedTuple):
    """A payload and its port."""

    port: int
    content: bytes


class UplinkDecoder:
    """Decoder of uplinks that works like the platform: codec, then TSL."""

    def __init__(self, workers: CodecWorkers, codec: Codec, document: TslDocument) -> None:
        self.codec = codec
        self._workers = workers
        self._tsl = compile_tsl(document)
        self._declared = {entry.id for entry in document.properties}
        self.measured = {entry.id for entry in document.properties if entry.access_mode == "R"}

    async def decode(self, uplinks: Sequence[Uplink], at: int | None = None) -> list[DecodeResult]:
        """Decode uplinks received at `at` (ms), by default now."""
        at = now_ms() if at is None else at
        calls = [CodecCall("decode", uplink.content, uplink.port, at) for uplink in uplinks]
        outcomes = await self._workers.run("simulated", self.codec, calls)
        return [check_decoded_frame(self.codec, outcome, self._tsl, at, at) for outcome in outcomes]

    async def decode_keys(self, uplinks: Sequence[Uplink]) -> list[frozenset[str]]:
        """Return the properties of each uplink; none if it is faulty or has past readings.

        Values that the TSL does not declare do not make an uplink faulty.
        """
        return [
            frozenset() if self._is_faulty(decoded) else frozenset(decoded.properties)
            for decoded in await self.decode(uplinks)
        ]

    def _is_faulty(self, decoded: DecodeResult) -> bool:
        paths = (fault.path.split(".") for fault in decoded.faults)
        declared = any(self._declared.intersection(path) for path in paths)
        return bool(declared or decoded.reason or decoded.past)


async def find_uplinks(
    decoder: UplinkDecoder, examples: Sequence[Uplink], rng: random.Random
) -> list[Uplink]:
    """Return a series of similar uplinks that cover many properties of the product.

    Raises `CommandError` if the decoder accepts no candidate.
    """
    accepted_examples = [
        example
        for example, keys in zip(examples, await decoder.decode_keys(examples), strict=True)
        if keys
    ]
    parts = await _search_uplinks(decoder, [example.port for example in examples], rng)
    combined = await _combine_uplinks(decoder, parts)
    uplinks = [*combined, *accepted_examples, *parts]
    if not uplinks:
        raise CommandError(
            "the codec accepts none of the generated uplinks: add an example uplink to the codec"
        )
    return await _vary_uplinks(decoder, uplinks, rng)


async def _search_uplinks(
    decoder: UplinkDecoder, ports: Iterable[int], rng: random.Random
) -> list[Uplink]:
    """Return one shortened candidate for each set of properties that candidates have.

    All candidates have the first port with which the decoder accepts any.
    """
    numbers, until = _find_byte_literals(decoder.codec), time.monotonic() + _MAX_SEARCH_SECONDS
    for port in dict.fromkeys((*ports, *_FALLBACK_PORTS)):
        shortest_uplinks: dict[frozenset[str], Uplink] = {}
        candidates = (Uplink(port, content) for content in _generate_candidates(numbers, rng))
        while batch := list(itertools.islice(candidates, _CANDIDATES_PER_BATCH)):
            for keys, uplink in zip(await decoder.decode_keys(batch), batch, strict=True):
                if keys:
                    shortest_uplinks.setdefault(keys, uplink)
            if time.monotonic() > until:
                break
        if shortest_uplinks:
            return [await _shorten(decoder, uplink) for uplink in shortest_uplinks.values()]
    return []


def _find_byte_literals(codec: Codec) -> list[int]:
    """Return the byte literals in a decoder's scripts."""
    texts = {step.script: codec.scripts[step.script] for step in codec.decoder}.values()
    numbers = (
        int(a, 16) if a else int(b) for text in texts for a, b in _BYTE_LITERAL.findall(text)
    )
    return sorted(set(numbers) & set(range(256)))


def _generate_candidates(numbers: Sequence[int], rng: random.Random) -> Iterator[bytes]:
    """Yield payloads that start with literals, then payloads of random literals."""
    pairs = list(itertools.product(numbers, repeat=2))
    if len(pairs) > _MAX_PREFIXES:
        pairs = rng.sample(pairs, _MAX_PREFIXES)
    for head in (*((number,) for number in numbers), *pairs):
        yield bytes(head) + bytes(rng.randint(1, 60) for _ in range(_TAIL_LENGTHS[-1]))
        yield bytes(head) + bytes([1]) * _TAIL_LENGTHS[-1]
        for size in _TAIL_LENGTHS:
            yield bytes(head) + bytes(size)
    for _ in range(_MAX_PREFIXES):
        yield bytes(rng.choices(numbers, k=rng.choice(_TAIL_LENGTHS)))


async def _shorten(decoder: UplinkDecoder, uplink: Uplink) -> Uplink:
    """Return the shortest prefix of an uplink with the same readings."""
    starts = [
        uplink._replace(content=uplink.content[:size]) for size in range(1, len(uplink.content) + 1)
    ]
    readings = [judged.properties for judged in await decoder.decode(starts)]
    return starts[readings.index(readings[-1])]


async def _combine_uplinks(decoder: UplinkDecoder, parts: Sequence[Uplink]) -> list[Uplink]:
    """Return one uplink with as many measured properties as fit."""
    keys = await decoder.decode_keys(parts)
    measured = [uplink for uplink, has in zip(parts, keys, strict=True) if has & decoder.measured]
    if not measured:
        return []
    combined, has = Uplink(measured[0].port, b""), frozenset[str]()
    for part in measured:
        longer = combined._replace(content=combined.content + part.content)
        (more,) = await decoder.decode_keys([longer])
        if len(longer.content) <= _MAX_PAYLOAD_BYTES and more > has:
            combined, has = longer, more
    return [combined]


async def _vary_uplinks(
    decoder: UplinkDecoder, uplinks: Sequence[Uplink], rng: random.Random
) -> list[Uplink]:
    """Return `_UPLINKS_PER_PRODUCT` uplinks: the given ones, then variations."""
    pool = list(uplinks[:_UPLINKS_PER_PRODUCT])
    latest = list(pool)
    for turn in range(_UPLINKS_PER_PRODUCT - len(pool)):
        place = 0 if turn % 4 else (turn // 4) % len(latest)
        uplink = latest[place]
        candidates = [uplink, *(_change_byte(uplink, rng) for _ in range(_VARIATIONS_PER_UPLINK))]
        has, *others = await decoder.decode_keys(candidates)
        latest[place] = next(
            (new for new, keys in zip(candidates[1:], others, strict=True) if keys == has), uplink
        )
        pool.append(latest[place])
    return pool


def _change_byte(uplink: Uplink, rng: random.Random) -> Uplink:
    """Return the uplink with one byte slightly changed."""
    content = bytearray(uplink.content)
    place = rng.randrange(len(content))
    content[place] = (content[place] + rng.choice((-3, -2, -1, 1, 2, 3))) % 256
    return uplink._replace(content=bytes(content))


_LOCAL_EUI_BYTE = 0x02
"""First byte of the simulated DevEUIs, which marks them as locally administered."""


def build_dev_eui(server: str, model: str, number: int) -> str:
    """Return the DevEUI of the `number`th sensor of a product at a server."""
    return f"{_LOCAL_EUI_BYTE:02X}{zlib.crc32(f'{server} {model}'.encode()):08X}{number:06X}"


class QueuedDownlink(NamedTuple):
    """A downlink that waits at the server until the sensor listens."""

    name: str
    """Name that the platform gave the downlink."""
    uplink: Uplink
    confirmed: bool


class GatewayReception(NamedTuple):
    """Reception of an uplink by a LoRaWAN gateway: RSSI (dBm) and SNR (dB)."""

    eui: str
    rssi: int
    snr: float


class RadioParameters(NamedTuple):
    """Radio parameters of an uplink."""

    gateways: list[GatewayReception]
    spreading: int
    frequency: int
    """Radio frequency in Hz."""


_GATEWAY_EUIS = ("02a0b1c2d3e4f501", "02a0b1c2d3e4f502", "02a0b1c2d3e4f503")
_CHANNEL_HZ = (868_100_000, 868_300_000, 868_500_000)


@dataclass
class Sensor:
    """A class A sensor: it receives at most one downlink after each uplink."""

    eui: str
    model: str
    uplinks: list[Uplink]
    """Uplinks to send in turn."""
    rng: random.Random
    address: str = ""
    counter: int = 0
    queue: deque[QueuedDownlink] = field(default_factory=deque)
    pending: QueuedDownlink | None = None
    """The downlink received after the last uplink."""
    turn: int = 0

    def start_session(self) -> None:
        """Join the network: set a new device address, and the frame counter to 0."""
        self.address = f"{self.rng.getrandbits(32):08x}"
        self.counter = 0

    def next_uplink(self) -> Uplink:
        """Return the next uplink."""
        self.turn += 1
        return self.uplinks[self.turn % len(self.uplinks)]

    def choose_radio(self) -> RadioParameters:
        """Return random radio parameters with one or two gateways."""
        nearby = self.rng.sample(_GATEWAY_EUIS, self.rng.choice((1, 1, 2)))
        gateways = [
            GatewayReception(eui, self.rng.randint(-115, -60), self.rng.randint(-40, 110) / 10)
            for eui in nearby
        ]
        return RadioParameters(
            gateways, self.rng.choice((7, 7, 8, 9)), self.rng.choice(_CHANNEL_HZ)
        )
