"""Message formats of network servers for uplinks, downlinks and events."""

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from deploy.local.lorawan.sensors import (
    GatewayReception,
    QueuedDownlink,
    RadioParameters,
    Sensor,
    Uplink,
)

_BANDWIDTH_HZ = 125_000


class PublishedMessage(NamedTuple):
    """An MQTT message of a network server."""

    topic: str
    payload: bytes


class ServerFormat(Protocol):
    """The message format of a network server."""

    qos: int
    downlinks: str
    """Topic filter of downlinks."""

    def build_uplink(
        self, sensor: Sensor, uplink: Uplink, radio: RadioParameters, at: datetime
    ) -> PublishedMessage:
        """Return an uplink with the sensor's current frame counter."""

    def build_join(self, sensor: Sensor, at: datetime) -> PublishedMessage:
        """Return a join event."""

    def build_status(self, sensor: Sensor, at: datetime) -> PublishedMessage | None:
        """Return a battery status; None if the server has no such message."""

    def build_sent_event(
        self, sensor: Sensor, downlink: QueuedDownlink, at: datetime
    ) -> PublishedMessage:
        """Return the event that a gateway has sent a downlink."""

    def build_acknowledgement(
        self, sensor: Sensor, downlink: QueuedDownlink, at: datetime, *, acknowledged: bool
    ) -> PublishedMessage:
        """Return the event that a sensor acknowledged a downlink, or did not."""

    def parse_dev_eui(self, topic: str) -> str:
        """Return the DevEUI in the topic of a downlink."""

    def decode_downlinks(self, payload: bytes) -> list[QueuedDownlink]:
        """Return the downlinks in a message.

        Raises `ValueError`, `LookupError` or `TypeError` if the message has another format.
        """


class ChirpStack:
    """The JSON events of ChirpStack 4 (`integration.proto`)."""

    qos = 1

    def __init__(self, application: str) -> None:
        self.application = application
        self.downlinks = f"application/{application}/device/+/command/down"

    def build_event(self, eui: str, kind: str, at: datetime, **fields: Any) -> PublishedMessage:
        """Return an event of a device."""
        body = {
            "time": _iso_time(at),
            "deviceInfo": {
                "tenantId": "00000000-0000-0000-0000-000000000000",
                "tenantName": "Simulated",
                "applicationId": self.application,
                "applicationName": "Simulated",
                "deviceName": eui.lower(),
                "devEui": eui.lower(),
            },
            **fields,
        }
        topic = f"application/{self.application}/device/{eui.lower()}/event/{kind}"
        return PublishedMessage(topic, msgspec.json.encode(body))

    def build_uplink(
        self, sensor: Sensor, uplink: Uplink, radio: RadioParameters, at: datetime
    ) -> PublishedMessage:
        """Return an `up` event."""
        return self.build_event(
            sensor.eui,
            "up",
            at,
            devAddr=sensor.address,
            adr=True,
            fCnt=sensor.counter,
            fPort=uplink.port,
            confirmed=False,
            data=b64encode(uplink.content).decode(),
            rxInfo=[
                {"gatewayId": gateway.eui, "rssi": gateway.rssi, "snr": gateway.snr}
                for gateway in radio.gateways
            ],
            txInfo={
                "frequency": radio.frequency,
                "modulation": {
                    "lora": {
                        "bandwidth": _BANDWIDTH_HZ,
                        "spreadingFactor": radio.spreading,
                        "codeRate": "CR_4_5",
                    }
                },
            },
        )

    def build_join(self, sensor: Sensor, at: datetime) -> PublishedMessage:
        """Return a `join` event."""
        return self.build_event(sensor.eui, "join", at, devAddr=sensor.address)

    def build_status(self, sensor: Sensor, at: datetime) -> PublishedMessage | None:
        """Return a `status` event."""
        level = sensor.rng.randint(30, 100)
        return self.build_event(
            sensor.eui,
            "status",
            at,
            margin=sensor.rng.randint(1, 25),
            externalPowerSource=False,
            batteryLevelUnavailable=False,
            batteryLevel=level,
        )

    def build_sent_event(
        self, sensor: Sensor, downlink: QueuedDownlink, at: datetime
    ) -> PublishedMessage:
        """Return a `txack` event."""
        return self.build_event(sensor.eui, "txack", at, queueItemId=downlink.name)

    def build_acknowledgement(
        self, sensor: Sensor, downlink: QueuedDownlink, at: datetime, *, acknowledged: bool
    ) -> PublishedMessage:
        """Return an `ack` event."""
        return self.build_event(
            sensor.eui, "ack", at, queueItemId=downlink.name, acknowledged=acknowledged
        )

    def parse_dev_eui(self, topic: str) -> str:
        """Return the DevEUI in `application/…/device/{eui}/command/down`."""
        return topic.split("/")[3].upper()

    def decode_downlinks(self, payload: bytes) -> list[QueuedDownlink]:
        """Return the downlink in a JSON message."""
        message = msgspec.json.decode(payload)
        uplink = Uplink(int(message["fPort"]), b64decode(message["data"]))
        return [QueuedDownlink(message["id"], uplink, bool(message["confirmed"]))]


class TheThingsStack:
    """The JSON messages of an application of The Things Stack 3 over MQTT."""

    qos = 0

    def __init__(self, user: str) -> None:
        """`user` is the user name at the broker, `application@tenant`."""
        self.user = user
        self.downlinks = f"v3/{user}/devices/+/down/push"

    def build_message(self, eui: str, kind: str, at: datetime, **fields: Any) -> PublishedMessage:
        """Return a message of a device."""
        name = f"eui-{eui.lower()}"
        body = {
            "end_device_ids": {
                "device_id": name,
                "application_ids": {"application_id": self.user.partition("@")[0]},
                "dev_eui": eui,
            },
            "correlation_ids": [],
            "received_at": _iso_time(at),
            **fields,
        }
        return PublishedMessage(f"v3/{self.user}/devices/{name}/{kind}", msgspec.json.encode(body))

    def build_uplink(
        self, sensor: Sensor, uplink: Uplink, radio: RadioParameters, at: datetime
    ) -> PublishedMessage:
        """Return an uplink; empty fields are left out."""
        message = {
            "session_key_id": _session_key_id(sensor),
            "f_port": uplink.port,
            "f_cnt": sensor.counter,
            "frm_payload": b64encode(uplink.content).decode(),
            "rx_metadata": [_gateway_metadata(gateway) for gateway in radio.gateways],
            "settings": {
                "data_rate": {
                    "lora": {"bandwidth": _BANDWIDTH_HZ, "spreading_factor": radio.spreading}
                },
                "coding_rate": "4/5",
                "frequency": str(radio.frequency),
            },
            "received_at": _iso_time(at),
        }
        filled = {name: value for name, value in message.items() if value}
        return self.build_message(sensor.eui, "up", at, uplink_message=filled)

    def build_join(self, sensor: Sensor, at: datetime) -> PublishedMessage:
        """Return a `join` message."""
        accept = {"session_key_id": _session_key_id(sensor), "received_at": _iso_time(at)}
        return self.build_message(sensor.eui, "join", at, join_accept=accept)

    def build_status(self, sensor: Sensor, at: datetime) -> PublishedMessage | None:
        """Return None: the server has no such message."""
        return None

    def build_sent_event(
        self, sensor: Sensor, downlink: QueuedDownlink, at: datetime
    ) -> PublishedMessage:
        """Return a `down/sent` message."""
        return self.build_message(
            sensor.eui, "down/sent", at, downlink_sent=_downlink_body(downlink)
        )

    def build_acknowledgement(
        self, sensor: Sensor, downlink: QueuedDownlink, at: datetime, *, acknowledged: bool
    ) -> PublishedMessage:
        """Return a `down/ack` or `down/nack` message."""
        kind = "ack" if acknowledged else "nack"
        more = {f"downlink_{kind}": _downlink_body(downlink)}
        return self.build_message(sensor.eui, f"down/{kind}", at, **more)

    def parse_dev_eui(self, topic: str) -> str:
        """Return the DevEUI in `v3/…/devices/eui-{eui}/down/push`."""
        return topic.split("/")[3].removeprefix("eui-").upper()

    def decode_downlinks(self, payload: bytes) -> list[QueuedDownlink]:
        """Return the downlinks of a push."""
        return [
            QueuedDownlink(
                message["correlation_ids"][0],
                Uplink(int(message["f_port"]), b64decode(message["frm_payload"])),
                bool(message.get("confirmed")),
            )
            for message in msgspec.json.decode(payload)["downlinks"]
        ]


def _session_key_id(sensor: Sensor) -> str:
    return b64encode(bytes.fromhex(sensor.address)).decode()


def _gateway_metadata(gateway: GatewayReception) -> dict[str, Any]:
    return {
        "gateway_ids": {"gateway_id": f"eui-{gateway.eui}", "eui": gateway.eui.upper()},
        "rssi": gateway.rssi,
        "channel_rssi": gateway.rssi,
        "snr": gateway.snr,
    }


def _downlink_body(downlink: QueuedDownlink) -> dict[str, Any]:
    return {
        "f_port": downlink.uplink.port,
        "frm_payload": b64encode(downlink.uplink.content).decode(),
        "confirmed": downlink.confirmed,
        "correlation_ids": [downlink.name],
    }


def _iso_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
