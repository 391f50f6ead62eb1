"""What network servers publish of sensors, and how they are given downlinks."""

from base64 import b64decode, b64encode
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from deploy.local.lorawan.sensors import Gateway, Queued, Radio, Sensor, Uplink

_BANDWIDTH = 125_000


class Published(NamedTuple):
    """A message of a server."""

    topic: str
    payload: bytes


class NetworkServer(Protocol):
    """The messages of a kind of network server."""

    qos: int
    downlinks: str
    """The topic filter of downlinks."""

    def up(self, sensor: Sensor, uplink: Uplink, radio: Radio, at: datetime) -> Published:
        """An uplink with the counter that the sensor is at."""

    def join(self, sensor: Sensor, at: datetime) -> Published:
        """The sensor has joined."""

    def status(self, sensor: Sensor, at: datetime) -> Published | None:
        """What it answered about its battery; None where a server tells nothing of it."""

    def sent(self, sensor: Sensor, downlink: Queued, at: datetime) -> Published:
        """A downlink was sent by a gateway."""

    def answered(
        self, sensor: Sensor, downlink: Queued, at: datetime, *, acknowledged: bool
    ) -> Published:
        """A confirmed downlink was acknowledged, or was not."""

    def device(self, topic: str) -> str:
        """The DevEUI of the sensor that a downlink is for; empty when it is none of ours."""

    def read(self, payload: bytes) -> list[Queued]:
        """Downlinks that are queued; raise `ValueError` or `KeyError` for anything else."""


class ChirpStack:
    """The JSON events of ChirpStack 4 (`integration.proto`)."""

    qos = 1

    def __init__(self, application: str) -> None:
        self.application = application
        self.downlinks = f"application/{application}/device/+/command/down"

    def event(self, eui: str, kind: str, at: datetime, **fields: Any) -> Published:
        """An event of a device."""
        body = {
            "time": _text(at),
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
        return Published(topic, msgspec.json.encode(body))

    def up(self, sensor: Sensor, uplink: Uplink, radio: Radio, at: datetime) -> Published:
        """An uplink with the counter that the sensor is at."""
        return self.event(
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
                {"gatewayId": one.eui, "rssi": one.rssi, "snr": one.snr} for one in radio.gateways
            ],
            txInfo={
                "frequency": radio.frequency,
                "modulation": {
                    "lora": {
                        "bandwidth": _BANDWIDTH,
                        "spreadingFactor": radio.spreading,
                        "codeRate": "CR_4_5",
                    }
                },
            },
        )

    def join(self, sensor: Sensor, at: datetime) -> Published:
        """The sensor has joined."""
        return self.event(sensor.eui, "join", at, devAddr=sensor.address)

    def status(self, sensor: Sensor, at: datetime) -> Published | None:
        """What it answered about its battery."""
        level = sensor.rng.randint(30, 100)
        return self.event(
            sensor.eui,
            "status",
            at,
            margin=sensor.rng.randint(1, 25),
            externalPowerSource=False,
            batteryLevelUnavailable=False,
            batteryLevel=level,
        )

    def sent(self, sensor: Sensor, downlink: Queued, at: datetime) -> Published:
        """A downlink was sent by a gateway."""
        return self.event(sensor.eui, "txack", at, queueItemId=downlink.name)

    def answered(
        self, sensor: Sensor, downlink: Queued, at: datetime, *, acknowledged: bool
    ) -> Published:
        """A confirmed downlink was acknowledged, or was not."""
        return self.event(
            sensor.eui, "ack", at, queueItemId=downlink.name, acknowledged=acknowledged
        )

    def device(self, topic: str) -> str:
        """The DevEUI in `application/…/device/{eui}/command/down`."""
        return topic.split("/")[3].upper()

    def read(self, payload: bytes) -> list[Queued]:
        """A downlink in JSON."""
        given = msgspec.json.decode(payload)
        uplink = Uplink(int(given["fPort"]), b64decode(given["data"]))
        return [Queued(given["id"], uplink, bool(given["confirmed"]))]


class TheThingsStack:
    """The JSON messages of an application of The Things Stack 3, over MQTT."""

    qos = 0

    def __init__(self, user: str) -> None:
        """`user` is `application@tenant`, as who logs in is called."""
        self.user = user
        self.downlinks = f"v3/{user}/devices/+/down/push"

    def message(self, eui: str, kind: str, at: datetime, **fields: Any) -> Published:
        """A message of a device."""
        name = f"eui-{eui.lower()}"
        body = {
            "end_device_ids": {
                "device_id": name,
                "application_ids": {"application_id": self.user.partition("@")[0]},
                "dev_eui": eui,
            },
            "correlation_ids": [],
            "received_at": _text(at),
            **fields,
        }
        return Published(f"v3/{self.user}/devices/{name}/{kind}", msgspec.json.encode(body))

    def up(self, sensor: Sensor, uplink: Uplink, radio: Radio, at: datetime) -> Published:
        """An uplink with the counter that the sensor is at; empty fields are left out."""
        message = {
            "session_key_id": _session_key(sensor),
            "f_port": uplink.port,
            "f_cnt": sensor.counter,
            "frm_payload": b64encode(uplink.content).decode(),
            "rx_metadata": [_metadata(one) for one in radio.gateways],
            "settings": {
                "data_rate": {
                    "lora": {"bandwidth": _BANDWIDTH, "spreading_factor": radio.spreading}
                },
                "coding_rate": "4/5",
                "frequency": str(radio.frequency),
            },
            "received_at": _text(at),
        }
        filled = {name: value for name, value in message.items() if value}
        return self.message(sensor.eui, "up", at, uplink_message=filled)

    def join(self, sensor: Sensor, at: datetime) -> Published:
        """The sensor has joined."""
        accept = {"session_key_id": _session_key(sensor), "received_at": _text(at)}
        return self.message(sensor.eui, "join", at, join_accept=accept)

    def status(self, sensor: Sensor, at: datetime) -> Published | None:
        """It tells nothing of it."""
        return None

    def sent(self, sensor: Sensor, downlink: Queued, at: datetime) -> Published:
        """A downlink was sent by a gateway."""
        return self.message(sensor.eui, "down/sent", at, downlink_sent=_downlink(downlink))

    def answered(
        self, sensor: Sensor, downlink: Queued, at: datetime, *, acknowledged: bool
    ) -> Published:
        """A confirmed downlink was acknowledged, or was not."""
        kind = "ack" if acknowledged else "nack"
        more = {f"downlink_{kind}": _downlink(downlink)}
        return self.message(sensor.eui, f"down/{kind}", at, **more)

    def device(self, topic: str) -> str:
        """The DevEUI in `v3/…/devices/eui-{eui}/down/push`."""
        return topic.split("/")[3].removeprefix("eui-").upper()

    def read(self, payload: bytes) -> list[Queued]:
        """Downlinks of a push."""
        return [
            Queued(
                given["correlation_ids"][0],
                Uplink(int(given["f_port"]), b64decode(given["frm_payload"])),
                bool(given.get("confirmed")),
            )
            for given in msgspec.json.decode(payload)["downlinks"]
        ]


def _session_key(sensor: Sensor) -> str:
    return b64encode(bytes.fromhex(sensor.address)).decode()


def _metadata(one: Gateway) -> dict[str, Any]:
    return {
        "gateway_ids": {"gateway_id": f"eui-{one.eui}", "eui": one.eui.upper()},
        "rssi": one.rssi,
        "channel_rssi": one.rssi,
        "snr": one.snr,
    }


def _downlink(downlink: Queued) -> dict[str, Any]:
    return {
        "f_port": downlink.uplink.port,
        "frm_payload": b64encode(downlink.uplink.content).decode(),
        "confirmed": downlink.confirmed,
        "correlation_ids": [downlink.name],
    }


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
