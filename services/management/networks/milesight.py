"""The integration `milesight`: devices of the network server in Milesight gateways.

Topics are set in the gateway, so the fields of a message determine its type. A gateway does not
identify downlinks: a state applies to the oldest pending downlink of the device.
"""

from typing import Any

import msgspec

from libs.common.clock import parse_time, to_ms
from libs.common.contracts.frames import DeviceFrame, DownlinkState, Reception, SendDownlinkState
from libs.common.contracts.integrations import MISSING_SETTING_CODE, DeviceRef, PropertiesUpdated
from libs.common.errors import InvalidInput
from services.management.manifests import load_manifest
from services.management.networks.broker import check_topic_filter
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
from services.management.networks.settings import Broker, read_setting

UPLINKS, DOWNLINKS, ACKS, ERRORS = "uplink_topic", "downlink_topic", "ack_topic", "error_topic"
TOPIC_SETTINGS = (UPLINKS, DOWNLINKS, ACKS, ERRORS)
DEV_EUI_PLACEHOLDER = "$deveui"
"""Placeholder in a topic for the DevEUI of a device."""


class Milesight(NetworkServer):
    """Receives messages of gateways through a broker, on the topics set in the gateways."""

    manifest = load_manifest("milesight")
    own_settings = TOPIC_SETTINGS

    async def updated(self, change: PropertiesUpdated) -> None:
        """Store topics and the broker; raise `InvalidInput`."""
        for key in TOPIC_SETTINGS:
            topic = read_setting(change.properties, key)
            if topic.count(DEV_EUI_PLACEHOLDER) > 1 or "\0" in topic:
                raise InvalidInput("must be a topic with at most one $deveui", field=key)
            if topic:
                check_topic_filter(topic.replace(DEV_EUI_PLACEHOLDER, "+"), key)
            if (
                key == DOWNLINKS
                and topic
                and (DEV_EUI_PLACEHOLDER not in topic or {*"+#"} & {*topic})
            ):
                raise InvalidInput("must contain $deveui, and neither + nor #", field=key)
        await super().updated(change)

    def list_topics(self, broker: Broker, values: dict[str, Any]) -> list[str]:
        """Return the topics that are set, for all devices."""
        if not values[UPLINKS]:
            raise InvalidInput("is not set", field=UPLINKS, code=MISSING_SETTING_CODE)
        subscribed = (values[key] for key in TOPIC_SETTINGS if key != DOWNLINKS and values[key])
        return [fromkey.replace(DEV_EUI_PLACEHOLDER, "+") for fromkey in dict.fromkeys(subscribed)]

    def decode_message(self, tenant: str, topic: str, payload: bytes) -> InboundMessage | None:
        """Return an uplink, or the state of a downlink."""
        return decode_gateway_message(tenant, payload)

    def encode_downlink(
        self, downlink: OutboundDownlink, broker: Broker, values: dict[str, Any]
    ) -> Publication:
        """Return a downlink on the topic of the device."""
        if not values[DOWNLINKS]:
            raise InvalidInput("is not set", field=DOWNLINKS, code=MISSING_SETTING_CODE)
        return encode_downlink(downlink, values[DOWNLINKS])

    async def _get_route(self, device: DeviceRef) -> DownlinkRoute:
        """Return an empty route, because the topic needs only the DevEUI."""
        return DownlinkRoute()


class _RxInfo(msgspec.Struct, kw_only=True):
    mac: str = ""
    rssi: float | None = None
    snr: float | None = msgspec.field(default=None, name="loRaSNR")


class _DataRate(msgspec.Struct, rename="camel", kw_only=True):
    modulation: str = ""
    bandwidth: int = 0
    """Bandwidth in kHz."""
    spread_factor: int = 0

    def __str__(self) -> str:
        if self.spread_factor:
            return format_data_rate(self.spread_factor, self.bandwidth * 1000)
        return self.modulation


class _TxInfo(msgspec.Struct, rename="camel", kw_only=True):
    frequency: int | None = None
    data_rate: _DataRate = msgspec.field(default_factory=_DataRate)


class _GatewayMessage(msgspec.Struct, rename="camel", kw_only=True):
    dev_eui: str = msgspec.field(name="devEUI")
    time: Any = None
    dev_addr: str = ""
    """Only sent by newer firmware."""
    f_cnt: int = 0
    f_port: int = 0
    data: bytes | None = None
    rx_info: list[_RxInfo] = []
    tx_info: _TxInfo = msgspec.field(default_factory=_TxInfo)
    acknowledged: bool | None = None
    error: str = ""


_DECODER = msgspec.json.Decoder(_GatewayMessage, strict=False)


def decode_gateway_message(tenant: str, body: bytes) -> InboundMessage | None:
    """Decode a message of a gateway; None if it is not needed; raise `InvalidInput`."""
    message: _GatewayMessage = decode_ignoring_invalid_radio(_DECODER, body)
    message.time = parse_time(message.time)
    report = _build_report(tenant, parse_dev_eui(message.dev_eui, "devEUI"), message)
    return None if report is None else InboundMessage(report)


def _build_report(tenant: str, identifier: str, message: _GatewayMessage) -> DeviceReport | None:
    if message.data is not None:
        return _build_uplink(tenant, identifier, message, message.data)
    if message.acknowledged is None and not message.error:
        return None
    state: DownlinkState = "ACKNOWLEDGED" if message.acknowledged else "UNACKNOWLEDGED"
    return SendDownlinkState(
        tenant=tenant,
        identifier=identifier,
        downlink="",
        state="REFUSED" if message.error else state,
        ts=parse_time_ms(message.time),
        error=message.error[:1000],
    )


def _build_uplink(
    tenant: str, identifier: str, message: _GatewayMessage, data: bytes
) -> DeviceFrame | None:
    """Return an uplink; without a device address, its time identifies the session."""
    time = message.time
    session = truncate_name(message.dev_addr) or ("" if time is None else str(to_ms(time)))
    return create_uplink(
        tenant,
        identifier,
        port=message.f_port,
        data=data,
        counter=message.f_cnt,
        time=time,
        session=session,
        frequency=message.tx_info.frequency,
        data_rate=str(message.tx_info.data_rate),
        gateways=[
            Reception(gateway=truncate_name(reception.mac), rssi=reception.rssi, snr=reception.snr)
            for reception in message.rx_info
        ],
    )


def encode_downlink(outbound: OutboundDownlink, topic: str) -> Publication:
    """Return a downlink in the format of the gateway."""
    downlink = outbound.downlink
    body = {"confirmed": downlink.confirmed, "fPort": downlink.port, "data": downlink.data}
    topic = topic.replace(DEV_EUI_PLACEHOLDER, outbound.identifier.lower())
    return Publication(topic, msgspec.json.encode(body))
