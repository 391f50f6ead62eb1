"""Messages of network servers, as their documentation and their servers show them."""

from base64 import b64encode
from datetime import UTC, datetime

import msgspec
from chirpstack_api.gw import gw_pb2
from chirpstack_api.integration import integration_pb2 as pb

from deploy.local.lorawan.servers import ChirpStack

EUI = "0102030405060708"
APPLICATION = "17c82e96-be03-4f38-aef3-f83d48582d97"
ITEM = "cc5ef9e2-8f1a-4f5e-9c2a-0f7b0d7c5a3e"

SF11 = {"bandwidth": 125000, "spreadingFactor": 11}

CHIRPSTACK_UP = b"""{
  "deduplicationId": "3ac7e3c4-4401-4b8d-9386-a5c902f9202d",
  "time": "2022-07-18T09:34:15.775023242+00:00",
  "deviceInfo": {
    "tenantId": "52f14cd4-c6f1-4fbd-8f87-4025e1d49242", "tenantName": "ChirpStack",
    "applicationId": "17c82e96-be03-4f38-aef3-f83d48582d97", "applicationName": "Test application",
    "deviceProfileId": "14855bf7-d10d-4aee-b618-ebfcb64dc7ad",
    "deviceProfileName": "Test device-profile", "deviceName": "Test device",
    "devEui": "0102030405060708", "tags": {"key": "value"}
  },
  "devAddr": "00189440", "dr": 1, "fCnt": 4, "fPort": 1, "confirmed": true, "data": "qg==",
  "rxInfo": [
    {"gatewayId": "0016c001f153a14c", "uplinkId": 4217106255, "rssi": -36, "snr": 10.5,
     "context": "E3OWOQ==", "metadata": {"region_name": "eu868"}},
    {"gatewayId": "0016c001f153a14d", "uplinkId": 4217106256, "rssi": -30, "context": "E3OWOQ=="}
  ],
  "txInfo": {"frequency": 867100000,
    "modulation": {"lora": {"bandwidth": 125000, "spreadingFactor": 11, "codeRate": "CR_4_5"}}}
}"""

TTS_UP = b"""{
  "end_device_ids": {
    "device_id": "dev1", "application_ids": {"application_id": "app1"},
    "dev_eui": "0004A30B001C0530", "join_eui": "800000000000000C", "dev_addr": "00BCB929"
  },
  "correlation_ids": ["as:up:01E0WZGT6Y7657CPFPE5WEYDSQ"],
  "received_at": "2020-02-12T15:15:45.787Z",
  "uplink_message": {
    "session_key_id": "AXA50tHUHnbPeR1Sm4h5rA==", "f_port": 15, "f_cnt": 4, "frm_payload": "Ynw=",
    "decoded_payload": {"temperature": 1.0},
    "rx_metadata": [
      {"gateway_ids": {"gateway_id": "gtw1", "eui": "9C5C8E00001A05C4"},
       "time": "2020-02-12T15:15:45.787Z", "timestamp": 2463457000, "rssi": -35,
       "channel_rssi": -35, "snr": 5.2, "uplink_token": "ChIKEA=="}
    ],
    "settings": {
      "data_rate": {"lora": {"bandwidth": 125000, "spreading_factor": 7}},
      "coding_rate": "4/6", "frequency": "868300000", "timestamp": 2463457000
    },
    "received_at": "2020-02-12T15:15:45.123Z", "consumed_airtime": "0.056576s"
  }
}"""

MILESIGHT_UP = b"""{
  "applicationID": "1", "applicationName": "cloud", "data": "A2fqAARoTwUAAA==",
  "devEUI": "24e124136b502217", "deviceName": "EM300-TH", "fCnt": 128, "fPort": 85,
  "rxInfo": [
    {"altitude": 0, "latitude": 0, "loRaSNR": 13.8, "longitude": 0, "mac": "24e124fffef54092",
     "name": "Local Gateway", "rssi": -51, "time": "2022-12-27T07:21:27.078763Z"}
  ],
  "time": "2022-12-27T07:21:27.078763Z",
  "txInfo": {
    "adr": true, "codeRate": "4/5",
    "dataRate": {"bandwidth": 125, "modulation": "LORA", "spreadFactor": 7},
    "frequency": 868100000
  }
}"""


def device_info() -> pb.DeviceInfo:
    """Of the same device, in protobuf."""
    return pb.DeviceInfo(application_id=APPLICATION, dev_eui=EUI)


def chirpstack_up() -> bytes:
    """`CHIRPSTACK_UP` in protobuf."""
    event = pb.UplinkEvent(
        device_info=device_info(),
        dev_addr="00189440",
        dr=1,
        f_cnt=4,
        f_port=1,
        confirmed=True,
        data=b"\xaa",
        rx_info=[
            gw_pb2.UplinkRxInfo(gateway_id="0016c001f153a14c", rssi=-36, snr=10.5),
            gw_pb2.UplinkRxInfo(gateway_id="0016c001f153a14d", rssi=-30),
        ],
        tx_info=gw_pb2.UplinkTxInfo(
            frequency=867100000,
            modulation=gw_pb2.Modulation(
                lora=gw_pb2.LoraModulationInfo(bandwidth=125000, spreading_factor=11)
            ),
        ),
    )
    event.time.FromJsonString("2022-07-18T09:34:15.775023242Z")
    return event.SerializeToString()


def chirpstack(**fields: object) -> bytes:
    """Another event of the same device, in JSON."""
    at = datetime(2022, 7, 18, 9, 34, 15, 775_000, tzinfo=UTC)
    return ChirpStack(APPLICATION).build_event(EUI, "up", at, **fields).payload


def heard_now(eui: str, counter: int, data: bytes, gateway: str = "0016c001f153a14c") -> bytes:
    """An uplink as ChirpStack says it, received now."""
    fields = {
        "devAddr": "00189440",
        "fCnt": counter,
        "fPort": 85,
        "data": b64encode(data).decode(),
        "rxInfo": [{"gatewayId": gateway, "rssi": -36, "snr": 10.5}],
        "txInfo": {"frequency": 867100000, "modulation": {"lora": SF11}},
    }
    return ChirpStack(APPLICATION).build_event(eui, "up", datetime.now(UTC), **fields).payload


def device_of(eui: str) -> dict[str, str]:
    """Of which device ChirpStack says something."""
    return {"applicationId": APPLICATION, "devEui": eui.lower()}


def tts(**fields: object) -> bytes:
    """Another message of The Things Stack's device."""
    message = msgspec.json.decode(TTS_UP)
    del message["uplink_message"]
    return msgspec.json.encode(message | fields)
