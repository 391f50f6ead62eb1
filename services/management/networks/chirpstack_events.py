"""Events of ChirpStack 4 (`integration.proto`) in JSON or protobuf, and its commands."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from libs.common.clock import parse_time
from libs.common.contracts.frames import (
    DeviceFrame,
    DownlinkState,
    Reception,
    SendDownlinkState,
    SendLinkState,
)
from libs.common.errors import MalformedRequest
from services.management.networks.messages import (
    DeviceReport,
    DownlinkRoute,
    InboundMessage,
    OutboundDownlink,
    Publication,
    create_uplink,
    decode_ignoring_invalid_radio,
    format_data_rate,
    parse_dev_eui,
    parse_time_ms,
    truncate_name,
)

if TYPE_CHECKING:
    from chirpstack_api.integration import integration_pb2 as pb

_TOPIC_LEVEL_COUNT = 6
_QUEUE_ITEM_ID_KEY = "queue_item_id"
"""Key in the context of a log entry, whose value is the reference of a downlink."""


class _Event(msgspec.Struct, rename="camel", kw_only=True):
    device_info: "_DeviceInfo"
    time: Any = None


class _DeviceInfo(msgspec.Struct, rename="camel", kw_only=True):
    dev_eui: str
    application_id: str = ""


class _RxInfo(msgspec.Struct, rename="camel", kw_only=True):
    gateway_id: str = ""
    rssi: float | None = None
    snr: float | None = None


class _Lora(msgspec.Struct, rename="camel", kw_only=True):
    bandwidth: int = 0
    spreading_factor: int = 0


class _Modulation(msgspec.Struct, rename="camel", kw_only=True):
    lora: _Lora | None = None
    fsk: dict[str, msgspec.Raw] | None = None
    lr_fhss: dict[str, msgspec.Raw] | None = None

    def __str__(self) -> str:
        if self.lora is not None:
            return format_data_rate(self.lora.spreading_factor, self.lora.bandwidth)
        return "FSK" if self.fsk is not None else "LR-FHSS" if self.lr_fhss is not None else ""


class _TxInfo(msgspec.Struct, rename="camel", kw_only=True):
    frequency: int | None = None
    modulation: _Modulation = msgspec.field(default_factory=_Modulation)


class _UplinkEvent(_Event, kw_only=True):
    dev_addr: str = ""
    f_cnt: int = 0
    f_port: int | None = 0
    confirmed: bool = False
    data: bytes = b""
    rx_info: list[_RxInfo] = []
    tx_info: _TxInfo = msgspec.field(default_factory=_TxInfo)


class _AckEvent(_Event, kw_only=True):
    queue_item_id: str = ""
    acknowledged: bool = False


class _LogEvent(_Event, kw_only=True):
    level: str = ""
    code: str = ""
    description: str = ""
    context: dict[str, str] = {}


class _StatusEvent(_Event, kw_only=True):
    margin: int = 0
    external_power_source: bool = False
    battery_level_unavailable: bool = False
    battery_level: float = 0.0


_JSON_DECODERS_BY_KIND: dict[str, msgspec.json.Decoder[Any]] = {
    "up": msgspec.json.Decoder(_UplinkEvent),
    "join": msgspec.json.Decoder(_Event),
    "ack": msgspec.json.Decoder(_AckEvent),
    "txack": msgspec.json.Decoder(_AckEvent),
    "log": msgspec.json.Decoder(_LogEvent),
    "status": msgspec.json.Decoder(_StatusEvent),
}
_PROTOBUF_TYPES_BY_KIND = {
    "up": "UplinkEvent",
    "join": "JoinEvent",
    "ack": "AckEvent",
    "txack": "TxAckEvent",
    "log": "LogEvent",
    "status": "StatusEvent",
}
"""Message types in `integration.proto`, by kind of event."""
EVENT_KINDS = tuple(_JSON_DECODERS_BY_KIND)


def decode_event(tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
    """Return the report of an event (`application/…/device/…/event/{kind}`); None if not needed.

    Raises `InvalidInput` if the event cannot be decoded.
    """
    parts = topic.split("/")
    kind = parts[-1]
    if len(parts) < _TOPIC_LEVEL_COUNT or kind not in _JSON_DECODERS_BY_KIND:
        return None
    protobuf = not payload.startswith(b"{")
    event = (
        _decode_protobuf(kind, payload)
        if protobuf
        else decode_ignoring_invalid_radio(_JSON_DECODERS_BY_KIND[kind], payload)
    )
    info = event.device_info
    report = _REPORT_BUILDERS_BY_KIND[kind](
        tenant, parse_dev_eui(info.dev_eui, "deviceInfo.devEui"), event
    )
    route = DownlinkRoute(application=info.application_id, protobuf=protobuf)
    return None if report is None else InboundMessage(report, route)


def _decode_protobuf(kind: str, payload: bytes) -> _Event:
    """Decode uplinks, which are frequent, directly, and other events through JSON."""
    # only processes that receive protobuf load its library, which needs 4 MiB
    from chirpstack_api.integration import integration_pb2 as pb  # noqa: PLC0415
    from google.protobuf.json_format import (  # noqa: PLC0415
        MessageToJson,
        SerializeToJsonError,
    )
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    message = getattr(pb, _PROTOBUF_TYPES_BY_KIND[kind])()
    try:
        message.ParseFromString(payload)
        if kind == "up":
            return _convert_uplink(message)
        event: _Event = decode_ignoring_invalid_radio(
            _JSON_DECODERS_BY_KIND[kind], MessageToJson(message, indent=None).encode()
        )
    except DecodeError as error:
        raise MalformedRequest(f"must be a JSON object or protobuf: {error}") from error
    except (ValueError, SerializeToJsonError) as error:
        raise MalformedRequest(f"cannot be decoded: {error}") from error
    return event


def _convert_uplink(message: "pb.UplinkEvent") -> _UplinkEvent:
    modulation = message.tx_info.modulation
    kind = modulation.WhichOneof("parameters")
    info = message.device_info
    return _UplinkEvent(
        device_info=_DeviceInfo(dev_eui=info.dev_eui, application_id=info.application_id),
        time=_reception_time(message) if message.HasField("time") else None,
        dev_addr=message.dev_addr,
        f_cnt=message.f_cnt,
        f_port=message.f_port,
        confirmed=message.confirmed,
        data=message.data,
        rx_info=[
            _RxInfo(gateway_id=gateway.gateway_id, rssi=gateway.rssi, snr=gateway.snr)
            for gateway in message.rx_info
        ],
        tx_info=_TxInfo(
            frequency=message.tx_info.frequency or None,
            modulation=_Modulation(
                lora=_Lora(
                    bandwidth=modulation.lora.bandwidth,
                    spreading_factor=modulation.lora.spreading_factor,
                )
                if kind == "lora"
                else None,
                fsk={} if kind == "fsk" else None,
                lr_fhss={} if kind == "lr_fhss" else None,
            ),
        ),
    )


def _reception_time(message: "pb.UplinkEvent") -> datetime | None:
    try:
        time: datetime = message.time.ToDatetime(UTC)
    except (ValueError, OverflowError):
        return None
    return time


def _build_uplink(tenant: str, identifier: str, event: _UplinkEvent) -> DeviceFrame | None:
    return create_uplink(
        tenant,
        identifier,
        port=event.f_port or 0,
        data=event.data,
        counter=event.f_cnt,
        time=parse_time(event.time),
        session=truncate_name(event.dev_addr),
        confirmed=event.confirmed,
        frequency=event.tx_info.frequency,
        data_rate=str(event.tx_info.modulation),
        gateways=[
            Reception(gateway=truncate_name(gateway.gateway_id), rssi=gateway.rssi, snr=gateway.snr)
            for gateway in event.rx_info
        ],
    )


def _build_join_state(tenant: str, identifier: str, event: _Event) -> SendLinkState:
    return SendLinkState(
        tenant=tenant, identifier=identifier, kind="JOINED", ts=parse_time_ms(event.time)
    )


def _build_status_state(tenant: str, identifier: str, event: _StatusEvent) -> SendLinkState:
    has_battery_level = not event.battery_level_unavailable and not event.external_power_source
    return SendLinkState(
        tenant=tenant,
        identifier=identifier,
        kind="STATUS",
        ts=parse_time_ms(event.time),
        battery=min(max(event.battery_level, 0.0), 100.0) if has_battery_level else None,
        external_power=event.external_power_source,
        margin=event.margin,
    )


def _build_acknowledged_state(tenant: str, identifier: str, event: _AckEvent) -> SendDownlinkState:
    state: DownlinkState = "ACKNOWLEDGED" if event.acknowledged else "UNACKNOWLEDGED"
    return _build_downlink_state(tenant, identifier, event, event.queue_item_id, state)


def _build_sent_state(tenant: str, identifier: str, event: _AckEvent) -> SendDownlinkState:
    return _build_downlink_state(tenant, identifier, event, event.queue_item_id, "SENT")


def _build_error_state(tenant: str, identifier: str, event: _LogEvent) -> SendDownlinkState | None:
    """Return an error of a downlink; other log entries are ignored."""
    if event.level != "ERROR" or _QUEUE_ITEM_ID_KEY not in event.context:
        return None
    error = f"{event.code}: {event.description}"[:1000]
    return _build_downlink_state(
        tenant, identifier, event, event.context[_QUEUE_ITEM_ID_KEY], "REFUSED", error
    )


def _build_downlink_state(
    tenant: str, identifier: str, event: _Event, item: str, state: DownlinkState, error: str = ""
) -> SendDownlinkState:
    return SendDownlinkState(
        tenant=tenant,
        identifier=identifier,
        downlink=item,
        state=state,
        ts=parse_time_ms(event.time),
        error=error,
    )


_REPORT_BUILDERS_BY_KIND: dict[str, Callable[..., DeviceReport | None]] = {
    "up": _build_uplink,
    "join": _build_join_state,
    "ack": _build_acknowledged_state,
    "txack": _build_sent_state,
    "log": _build_error_state,
    "status": _build_status_state,
}


def encode_command(outbound: OutboundDownlink) -> Publication:
    """Encode a downlink command; ChirpStack rejects one whose id it already knows."""
    identifier, route, downlink, reference = outbound
    eui = identifier.lower()
    if route.protobuf:
        from chirpstack_api.integration import integration_pb2 as pb  # noqa: PLC0415 - as above

        payload = pb.DownlinkCommand(
            id=reference,
            dev_eui=eui,
            confirmed=downlink.confirmed,
            f_port=downlink.port,
            data=downlink.data,
        ).SerializeToString()
    else:
        command = {
            "id": reference,
            "devEui": eui,
            "confirmed": downlink.confirmed,
            "fPort": downlink.port,
            "data": downlink.data,
        }
        payload = msgspec.json.encode(command)
    return Publication(f"application/{route.application}/device/{eui}/command/down", payload)
