"""Downlinks of commands, and their states as network servers report them.

A command that exceeds the payload of the data rate is split: one downlink per property. Network
servers report states by `rpc.device.downlink.{integration}`. The end of a command is published on
`UPLINK` as a reply of its device, and so stored exactly once.
"""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from libs.common.bus import RpcServer
from libs.common.clock import to_ms
from libs.common.contracts.frames import MAX_DOWNLINKS, SendDownlinkState
from libs.common.contracts.integrations import Acknowledged
from libs.common.errors import NotFound
from services.device.commands.model import (
    OPEN_STATES,
    Command,
    CommandDownlink,
    DownlinkEncoder,
    parse_downlink_id,
)
from services.device.commands.store import CommandStore
from services.device.lorawan.codec_cache import CodecCache
from services.device.lorawan.codec_calls import CallOutcome, CodecCall
from services.device.lorawan.codec_runner import CodecWorkers
from services.device.lorawan.codec_scripts import EncodedDownlink, parse_encoder_result
from services.device.lorawan.frame_store import FrameStore
from services.device.telemetry.reporter import Reporter
from services.device.things.codec_model import Codec, CodecFailed
from services.device.things.device_store import DeviceStore
from services.device.things.directory import ThingDirectory

SMALLEST_MAX_PAYLOAD_BYTES = 51
"""Maximum payload at the slowest data rate, except in regions with dwell times."""
MAX_BYTES_BY_SPREADING_FACTOR = {7: 222, 8: 222, 9: 115}
"""Maximum bytes by spreading factor at 125 kHz; slower ones carry `SMALLEST_MAX_PAYLOAD_BYTES`."""
SAME_RATE_FREQUENCIES_HZ = range(902_000_000)
"""Frequencies of regions where a downlink has the data rate of the uplink before."""

_DATA_RATE = re.compile(r"SF(\d{1,2})BW125$")


def max_payload_bytes(data_rate: str, frequency: int | None) -> int:
    """Return the bytes that fit into the response to an uplink.

    `data_rate` is like `SF7BW125`, `frequency` is in Hz. Unknown values give the smallest payload.
    """
    match = _DATA_RATE.match(data_rate)
    if match is None or frequency is None or frequency not in SAME_RATE_FREQUENCIES_HZ:
        return SMALLEST_MAX_PAYLOAD_BYTES
    return MAX_BYTES_BY_SPREADING_FACTOR.get(int(match[1]), SMALLEST_MAX_PAYLOAD_BYTES)


DEFAULT_PORT = 85
"""Port of a downlink when neither the codec nor an uplink names one."""


@dataclass(frozen=True, kw_only=True)
class CodecDownlinkEncoder(DownlinkEncoder):
    """Encodes commands by the codecs of their products."""

    codecs: CodecCache
    workers: CodecWorkers
    frames: FrameStore

    async def check_can_encode(self, tenant: str, model: str) -> None:
        """Raise `CodecFailed` for a product without a codec that encodes."""
        await self._find_encoder_codec(tenant, model)

    async def encode(self, command: Command, model: str) -> list[CommandDownlink]:
        """Return the downlinks of a command; raise `CodecFailed`."""
        codec = await self._find_encoder_codec(command.tenant, model)
        values = command.encoder_input()
        parts = [{key: value} for key, value in values.items()] if len(values) > 1 else []
        last = await self.frames.find_newest(command.thing_id)
        largest = (
            max_payload_bytes(last.data_rate, last.frequency)
            if last
            else max_payload_bytes("", None)
        )
        port, at = last.port if last else DEFAULT_PORT, to_ms(command.created_at)
        calls = [CodecCall("encode", part, port, at) for part in (values, *parts)]
        outcomes = await self.workers.run(command.tenant, codec, calls)
        whole, *alone = [_parse_outcome(codec, outcome, port) for outcome in outcomes]
        return split_downlinks(whole, dict(zip(values, alone or [whole], strict=True)), largest)

    async def _find_encoder_codec(self, tenant: str, model: str) -> Codec:
        cached = (await self.codecs.find_all([(tenant, model)]))[tenant, model]
        if cached.codec is None:
            raise CodecFailed(f"of product {model} is missing")
        if not cached.codec.encoder:
            raise CodecFailed(f"of product {model} has no encoder")
        return cached.codec


def _parse_outcome(codec: Codec, outcome: CallOutcome, port: int) -> EncodedDownlink | CodecFailed:
    try:
        return parse_encoder_result(codec.encoder, outcome.result(), port)
    except CodecFailed as error:
        return error


def split_downlinks(
    whole: EncodedDownlink | CodecFailed,
    alone: dict[str, EncodedDownlink | CodecFailed],
    largest: int,
) -> list[CommandDownlink]:
    """Return the downlinks of a command: `whole` if it fits, or the downlinks `alone` of each key.

    Raises `CodecFailed` for values that cannot be encoded, encode to no bytes or exceed `largest`
    bytes even alone, and for more than `MAX_DOWNLINKS` downlinks.
    """
    if isinstance(whole, CodecFailed):
        raise whole
    for key, encoded in alone.items():
        if isinstance(encoded, EncodedDownlink) and not encoded.content:
            raise CodecFailed(f"returns no bytes for {key}")
    if len(whole.content) <= largest:
        return [CommandDownlink(port=whole.port, data=whole.content)]
    if len(alone) > MAX_DOWNLINKS:
        raise CodecFailed(f"returns over {largest} bytes for more than {MAX_DOWNLINKS} values")
    return [_to_partial_downlink(key, encoded, largest) for key, encoded in alone.items()]


def _to_partial_downlink(
    key: str, encoded: EncodedDownlink | CodecFailed, largest: int
) -> CommandDownlink:
    if isinstance(encoded, CodecFailed):
        raise CodecFailed(f"{encoded} when it encodes only {key}")
    size = len(encoded.content)
    if size > largest:
        raise CodecFailed(f"returns {size} bytes for {key}, but the data rate carries {largest}")
    return CommandDownlink(port=encoded.port, data=encoded.content, keys=[key])


REASON_BY_FAILED_STATE = {
    "UNACKNOWLEDGED": "the device did not acknowledge it",
    "REFUSED": "refused",
}


@dataclass(frozen=True, kw_only=True)
class DownlinkStateRpc:
    """Updates commands by the downlink states that network servers report."""

    devices: DeviceStore
    things: ThingDirectory
    commands: CommandStore
    reporter: Reporter

    def offer(self, rpc: RpcServer) -> None:
        """Register the handler of `rpc.device.downlink.{integration}`."""
        rpc.offer_each("downlink", SendDownlinkState, self.on_downlink_state)

    async def on_downlink_state(self, integration: str, report: SendDownlinkState) -> Acknowledged:
        """Store the state of a downlink, and publish a reply if the state ends the command.

        Raises `NotFound` for an unknown device or downlink.
        """
        device = await self.devices.find_by_identifier(
            report.tenant, integration, report.identifier
        )
        if device is None:
            raise NotFound(
                f"{integration} has no device {report.identifier[:64]}", field="identifier"
            )
        read = parse_downlink_id(report.downlink)
        if read is None:
            raise _downlink_not_found(report)
        command = await self.commands.update_downlink_state(
            read[0], device.id, read[1], report.state
        )
        if command is None or not 1 <= read[1] <= len(command.downlinks or []):
            raise _downlink_not_found(report)
        end = _build_reply(command, report)
        if end is not None and command.status in OPEN_STATES:
            thing = await self.things.build_thing(device)
            await self.reporter.send(thing, "reply", msgspec.json.encode(end), report.downlink)
        return Acknowledged()


def _downlink_not_found(report: SendDownlinkState) -> NotFound:
    return NotFound(f"downlink {report.downlink} does not exist", field="downlink")


def _build_reply(command: Command, report: SendDownlinkState) -> dict[str, Any] | None:
    """Return the reply that the states of downlinks imply; None while a downlink is pending."""
    downlinks = command.downlinks or []
    reply = {"commandId": command.id}
    for downlink in downlinks:
        if downlink.state in REASON_BY_FAILED_STATE:
            reason = report.error or REASON_BY_FAILED_STATE[downlink.state]
            about = f" ({', '.join(downlink.keys)})" if downlink.keys else ""
            return reply | {"status": "FAILED", "error": reason + about}
    if all(downlink.state == "ACKNOWLEDGED" for downlink in downlinks):
        return reply | {"status": "SUCCESS"}
    return None
