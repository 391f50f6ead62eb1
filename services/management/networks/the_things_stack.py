"""The integration `tts`: devices of an application of The Things Stack 3.

Messages over MQTT or webhooks are JSON (`ApplicationUp`, `ApplicationDownlinks`) without empty
fields. Topics and webhooks carry the same messages, whose single content field determines the type.
"""

import re
from typing import Any

import msgspec

from libs.common.clock import parse_time
from libs.common.contracts.frames import (
    DeviceFrame,
    DownlinkState,
    Reception,
    SendDownlinkState,
    SendLinkState,
)
from libs.common.contracts.integrations import MISSING_SETTING_CODE, PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.manifests import load_manifest
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
from services.management.networks.server import NetworkServer
from services.management.networks.settings import USERNAME, Broker, read_setting

DEVICE_ID_SETTING = "device"
TOPIC_KINDS = ("up", "join", "down/ack", "down/nack", "down/sent", "down/failed")
"""Topics below the topic of a device."""
_HERTZ_PATTERN = re.compile("[0-9]{1,12}")
CORRELATION_PREFIX = "thingway:"
"""Prefix of our correlation ids."""


class TheThingsStack(NetworkServer):
    """Receives messages of an application, whose broker supports only QoS 0."""

    manifest = load_manifest("tts")
    qos = 0
    routed_by = DEVICE_ID_SETTING

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store changed settings; raise `InvalidInput` for wildcards or `/` in the user name.

        Topics contain the user name.
        """
        if {*"+#/"} & {*read_setting(change.properties, USERNAME)}:
            raise InvalidInput("must be application@tenant", field=USERNAME)
        await super().updated(change)

    def list_topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return the topics of the application, which is the user name."""
        if not broker.username:
            raise InvalidInput(
                "is not set: application@tenant", field=USERNAME, code=MISSING_SETTING_CODE
            )
        return [f"v3/{broker.username}/devices/+/{kind}" for kind in TOPIC_KINDS]

    def decode_message(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Return a message of the application server."""
        return decode_application_up(tenant, payload)

    def decode_hook(
        self, tenant: str, body: bytes, values: dict[str, Any]
    ) -> InboundMessage | None:
        """Return a message of the application server."""
        return decode_application_up(tenant, body)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Encode a downlink that is appended to the device's queue."""
        return encode_push(downlink, broker.username)


class _ApplicationIds(msgspec.Struct, kw_only=True):
    application_id: str


class _DeviceIds(msgspec.Struct, kw_only=True):
    device_id: str
    application_ids: _ApplicationIds
    dev_eui: str = ""


class _GatewayIds(msgspec.Struct, kw_only=True):
    gateway_id: str = ""
    eui: str = ""


class _RxMetadata(msgspec.Struct, kw_only=True):
    gateway_ids: _GatewayIds = msgspec.field(default_factory=_GatewayIds)
    rssi: float | None = None
    snr: float | None = None


class _Lora(msgspec.Struct, kw_only=True):
    bandwidth: int = 0
    spreading_factor: int = 0


class _DataRate(msgspec.Struct, kw_only=True):
    lora: _Lora | None = None
    fsk: dict[str, Any] | None = None
    lrfhss: dict[str, Any] | None = None

    def __str__(self) -> str:
        if self.lora is not None:
            return format_data_rate(self.lora.spreading_factor, self.lora.bandwidth)
        return "FSK" if self.fsk is not None else "LR-FHSS" if self.lrfhss is not None else ""


class _Settings(msgspec.Struct, kw_only=True):
    data_rate: _DataRate = msgspec.field(default_factory=_DataRate)
    frequency: str | int | None = None


class _Uplink(msgspec.Struct, kw_only=True):
    session_key_id: str = ""
    f_port: int = 0
    f_cnt: int = 0
    frm_payload: bytes = b""
    confirmed: bool = False
    rx_metadata: list[_RxMetadata] = []
    settings: _Settings = msgspec.field(default_factory=_Settings)
    received_at: Any = None


class _Downlink(msgspec.Struct, kw_only=True):
    correlation_ids: list[str] = []


class _Error(msgspec.Struct, kw_only=True):
    namespace: str = ""
    name: str = ""
    message_format: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}:{self.name}: {self.message_format}"[:1000]


class _FailedDownlink(msgspec.Struct, kw_only=True):
    downlink: _Downlink = msgspec.field(default_factory=_Downlink)
    error: _Error = msgspec.field(default_factory=_Error)


class _ApplicationUp(msgspec.Struct, kw_only=True):
    end_device_ids: _DeviceIds
    correlation_ids: list[str] = []
    received_at: Any = None
    uplink_message: _Uplink | None = None
    join_accept: dict[str, Any] | None = None
    downlink_ack: _Downlink | None = None
    downlink_nack: _Downlink | None = None
    downlink_sent: _Downlink | None = None
    downlink_failed: _FailedDownlink | None = None


_DECODER = msgspec.json.Decoder(_ApplicationUp, strict=False)
_DOWNLINK_STATE_BY_FIELD: tuple[tuple[str, DownlinkState], ...] = (
    ("downlink_ack", "ACKNOWLEDGED"),
    ("downlink_nack", "UNACKNOWLEDGED"),
    ("downlink_sent", "SENT"),
)


def decode_application_up(tenant: str, body: bytes) -> InboundMessage | None:
    """Return a message; None if it is not needed; raise `InvalidInput`."""
    up: _ApplicationUp = decode_ignoring_invalid_radio(_DECODER, body)
    ids = up.end_device_ids
    report = _build_report(tenant, parse_dev_eui(ids.dev_eui, "end_device_ids.dev_eui"), up)
    route = DownlinkRoute(application=ids.application_ids.application_id, device=ids.device_id)
    return None if report is None else InboundMessage(report, route)


def _build_report(tenant: str, identifier: str, up: _ApplicationUp) -> DeviceReport | None:
    if up.uplink_message is not None:
        return _build_uplink(tenant, identifier, up, up.uplink_message)
    ts = parse_time_ms(up.received_at)
    if up.join_accept is not None:
        return SendLinkState(tenant=tenant, identifier=identifier, kind="JOINED", ts=ts)
    failed = up.downlink_failed
    if failed is not None:
        ids, error = failed.downlink.correlation_ids, str(failed.error)
        state: DownlinkState = "REFUSED"
    else:
        candidates = ((getattr(up, key), state) for key, state in _DOWNLINK_STATE_BY_FIELD)
        happened = next(((event, state) for event, state in candidates if event is not None), None)
        if happened is None:
            return None
        ids, state, error = happened[0].correlation_ids, happened[1], ""
    own_references = [
        correlation_id
        for correlation_id in (*up.correlation_ids, *ids)
        if correlation_id.startswith(CORRELATION_PREFIX)
    ]
    if not own_references:
        return None
    return SendDownlinkState(
        tenant=tenant,
        identifier=identifier,
        downlink=own_references[0].removeprefix(CORRELATION_PREFIX),
        state=state,
        ts=ts,
        error=error,
    )


def _build_uplink(
    tenant: str, identifier: str, up: _ApplicationUp, message: _Uplink
) -> DeviceFrame | None:
    settings = message.settings
    return create_uplink(
        tenant,
        identifier,
        port=message.f_port,
        data=message.frm_payload,
        counter=message.f_cnt,
        time=parse_time(message.received_at) or parse_time(up.received_at),
        session=truncate_name(message.session_key_id),
        confirmed=message.confirmed,
        data_rate=str(settings.data_rate),
        frequency=_parse_hertz(settings.frequency),
        gateways=[
            Reception(
                gateway=truncate_name(
                    reception.gateway_ids.eui or reception.gateway_ids.gateway_id
                ),
                rssi=reception.rssi,
                snr=reception.snr,
            )
            for reception in message.rx_metadata
        ],
    )


def _parse_hertz(value: str | int | None) -> int | None:
    """Return a frequency in Hz, which may be text: JSON of protobuf has 64-bit numbers as texts."""
    text = str(value or "")
    return int(text) if _HERTZ_PATTERN.fullmatch(text) else None


def encode_push(outbound: OutboundDownlink, user: str) -> Publication:
    """Return a downlink that `down/push` appends to the device's queue.

    `user` is the user name of the connection, the full name of the application.
    """
    downlink = outbound.downlink
    pushed = {
        "f_port": downlink.port,
        "frm_payload": downlink.data,
        "confirmed": downlink.confirmed,
        "priority": "NORMAL",
        "correlation_ids": [CORRELATION_PREFIX + outbound.reference],
    }
    topic = f"v3/{user}/devices/{outbound.route.device}/down/push"
    return Publication(topic, msgspec.json.encode({"downlinks": [pushed]}))
