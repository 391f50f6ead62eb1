"""The JSON of the network server in Milesight gateways.

Topics are typed into the gateway, so what a message is, its fields say. A downlink has no name
there: what is told of one is told of the oldest that waits.
"""

from typing import Any

import msgspec

from libs.common.clock import parse_time, to_ms
from libs.common.contracts.frames import DownlinkState, Reception, TellDownlink, ToldFrame
from services.management.builtin.networks.heard import (
    Carried,
    Heard,
    Queued,
    dev_eui,
    frame,
    lora,
    name,
    reading,
)

DEVICE = "$deveui"
"""In a topic: the DevEUI of a device."""
_KHZ = 1000


class _RxInfo(msgspec.Struct, kw_only=True):
    mac: str = ""
    rssi: float | None = None
    snr: float | None = msgspec.field(default=None, name="loRaSNR")


class _DataRate(msgspec.Struct, rename="camel", kw_only=True):
    modulation: str = ""
    bandwidth: int = 0
    """kHz."""
    spread_factor: int = 0

    def __str__(self) -> str:
        if self.spread_factor:
            return lora(self.spread_factor, self.bandwidth * _KHZ)
        return self.modulation


class _TxInfo(msgspec.Struct, rename="camel", kw_only=True):
    frequency: int | None = None
    data_rate: _DataRate = msgspec.field(default_factory=_DataRate)


class _Message(msgspec.Struct, rename="camel", kw_only=True):
    dev_eui: str = msgspec.field(name="devEUI")
    time: Any = None
    dev_addr: str = ""
    """Newer firmware tells it."""
    f_cnt: int = 0
    f_port: int = 0
    data: bytes | None = None
    rx_info: list[_RxInfo] = []
    tx_info: _TxInfo = msgspec.field(default_factory=_TxInfo)
    acknowledged: bool | None = None
    error: str = ""


_DECODER = msgspec.json.Decoder(_Message, strict=False)


def read(tenant: str, body: bytes) -> Heard | None:
    """A message; None for one that is nothing to us. Raises `InvalidInput`."""
    message: _Message = reading(_DECODER, body)
    message.time = parse_time(message.time)
    told = _told(tenant, dev_eui(message.dev_eui, "devEUI"), message)
    return None if told is None else Heard(told)


def _told(tenant: str, identifier: str, message: _Message) -> ToldFrame | TellDownlink | None:
    if message.data is not None:
        return _uplink(tenant, identifier, message, message.data)
    if message.acknowledged is None and not message.error:
        return None
    state: DownlinkState = "ACKNOWLEDGED" if message.acknowledged else "UNACKNOWLEDGED"
    return TellDownlink(
        tenant=tenant,
        identifier=identifier,
        downlink="",
        state="REFUSED" if message.error else state,
        ts=None if message.time is None else to_ms(message.time),
        error=message.error[:1000],
    )


def _uplink(tenant: str, identifier: str, message: _Message, data: bytes) -> ToldFrame | None:
    """Without the device's address, its time stands for the session: counters begin anew."""
    time = message.time
    session = name(message.dev_addr) or ("" if time is None else str(to_ms(time)))
    found = frame(
        port=message.f_port,
        data=data,
        counter=message.f_cnt,
        time=time,
        session=session,
        frequency=message.tx_info.frequency,
        data_rate=str(message.tx_info.data_rate),
        gateways=[
            Reception(gateway=name(one.mac), rssi=one.rssi, snr=one.snr) for one in message.rx_info
        ],
    )
    if found is None:
        return None
    return ToldFrame(tenant=tenant, identifier=identifier, frame=found)


def queued(carried: Carried, topic: str) -> Queued:
    """A downlink as the gateway takes it at its topic."""
    downlink = carried.downlink
    body = {"confirmed": downlink.confirmed, "fPort": downlink.port, "data": downlink.data}
    return Queued(topic.replace(DEVICE, carried.identifier.lower()), msgspec.json.encode(body))
