"""The JSON messages of The Things Stack 3 (`ApplicationUp`, `ApplicationDownlinks`).

Fields that are empty are left out. A topic and a webhook carry the same; what it is, its one
field of content says.
"""

import re
from typing import Any

import msgspec

from libs.common.clock import parse_time, to_ms
from libs.common.contracts.frames import (
    DownlinkState,
    Reception,
    TellDownlink,
    TellLink,
    ToldFrame,
)
from services.management.builtin.networks.heard import (
    Carried,
    Heard,
    Queued,
    Route,
    dev_eui,
    frame,
    lora,
    name,
    reading,
)

_HERTZ = re.compile("[0-9]{1,12}")
CORRELATION = "thingway:"
"""What our correlation ids begin with."""


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
            return lora(self.lora.spreading_factor, self.lora.bandwidth)
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


class _Failed(msgspec.Struct, kw_only=True):
    downlink: _Downlink = msgspec.field(default_factory=_Downlink)
    error: _Error = msgspec.field(default_factory=_Error)


class _Up(msgspec.Struct, kw_only=True):
    end_device_ids: _DeviceIds
    correlation_ids: list[str] = []
    received_at: Any = None
    uplink_message: _Uplink | None = None
    join_accept: dict[str, Any] | None = None
    downlink_ack: _Downlink | None = None
    downlink_nack: _Downlink | None = None
    downlink_sent: _Downlink | None = None
    downlink_failed: _Failed | None = None


_DECODER = msgspec.json.Decoder(_Up, strict=False)
KINDS = ("up", "join", "down/ack", "down/nack", "down/sent", "down/failed")
"""Topics below that of a device."""
_STATES: tuple[tuple[str, DownlinkState], ...] = (
    ("downlink_ack", "ACKNOWLEDGED"),
    ("downlink_nack", "UNACKNOWLEDGED"),
    ("downlink_sent", "SENT"),
)


def read(tenant: str, body: bytes) -> Heard | None:
    """A message; None for one that is nothing to us. Raises `InvalidInput`."""
    up: _Up = reading(_DECODER, body)
    ids = up.end_device_ids
    told = _told(tenant, dev_eui(ids.dev_eui, "end_device_ids.dev_eui"), up)
    route = Route(application=ids.application_ids.application_id, device=ids.device_id)
    return None if told is None else Heard(told, route)


def _told(tenant: str, identifier: str, up: _Up) -> ToldFrame | TellLink | TellDownlink | None:
    if up.uplink_message is not None:
        return _uplink(tenant, identifier, up, up.uplink_message)
    time = parse_time(up.received_at)
    ts = None if time is None else to_ms(time)
    if up.join_accept is not None:
        return TellLink(tenant=tenant, identifier=identifier, kind="JOINED", ts=ts)
    failed = up.downlink_failed
    if failed is not None:
        ids, error = failed.downlink.correlation_ids, str(failed.error)
        state: DownlinkState = "REFUSED"
    else:
        found = ((getattr(up, key), state) for key, state in _STATES)
        happened = next(((one, state) for one, state in found if one is not None), None)
        if happened is None:
            return None
        ids, state, error = happened[0].correlation_ids, happened[1], ""
    ours = [one for one in (*up.correlation_ids, *ids) if one.startswith(CORRELATION)]
    if not ours:
        return None
    return TellDownlink(
        tenant=tenant,
        identifier=identifier,
        downlink=ours[0].removeprefix(CORRELATION),
        state=state,
        ts=ts,
        error=error,
    )


def _uplink(tenant: str, identifier: str, up: _Up, message: _Uplink) -> ToldFrame | None:
    settings = message.settings
    found = frame(
        port=message.f_port,
        data=message.frm_payload,
        counter=message.f_cnt,
        time=parse_time(message.received_at) or parse_time(up.received_at),
        session=name(message.session_key_id),
        confirmed=message.confirmed,
        data_rate=str(settings.data_rate),
        frequency=_hertz(settings.frequency),
        gateways=[
            Reception(
                gateway=name(one.gateway_ids.eui or one.gateway_ids.gateway_id),
                rssi=one.rssi,
                snr=one.snr,
            )
            for one in message.rx_metadata
        ],
    )
    if found is None:
        return None
    return ToldFrame(tenant=tenant, identifier=identifier, frame=found)


def _hertz(given: str | int | None) -> int | None:
    """What JSON of protobuf writes as text, for it has 64 bits."""
    text = str(given or "")
    return int(text) if _HERTZ.fullmatch(text) else None


def pushed(carried: Carried) -> bytes:
    """A downlink as `down/push` takes it, at the end of the queue."""
    downlink = carried.downlink
    one = {
        "f_port": downlink.port,
        "frm_payload": downlink.data,
        "confirmed": downlink.confirmed,
        "priority": "NORMAL",
        "correlation_ids": [CORRELATION + carried.reference],
    }
    return msgspec.json.encode({"downlinks": [one]})


def queued(carried: Carried, user: str) -> Queued:
    """The same with its topic; `user` is that of the connection, the application's full name."""
    return Queued(f"v3/{user}/devices/{carried.route.device}/down/push", pushed(carried))
