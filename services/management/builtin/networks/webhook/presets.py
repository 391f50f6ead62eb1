"""The fields of an uplink that a webhook has, and where well-known servers put them.

Each field has one JSON pointer or several, of which the first that leads to a value counts.
"""

from typing import Final

PRESET: Final = "preset"
DEVICE, DATA, ENCODING, PORT = "device", "data", "encoding", "port"
TIME, COUNTER, SESSION = "time", "counter", "session"
RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY = "rssi", "snr", "gateway", "data_rate", "frequency"
NEEDED = (DEVICE, DATA, PORT)
POINTERS = (*NEEDED, TIME, COUNTER, SESSION, RSSI, SNR, GATEWAY, DATA_RATE, FREQUENCY)
HEX: Final = "hex"

CUSTOM: Final = "custom"
"""The pointers that the user sets."""
SIGFOX: Final = "sigfox"
NAMES: Final = {
    CUSTOM: "Own JSON pointers",
    "helium": "Helium",
    "loriot": "LORIOT",
    "actility": "Actility ThingPark",
    SIGFOX: "Sigfox",
}

UPLINKS: Final = {"loriot": ("/cmd", ("rx", "gw"))}
"""Where a server says what a message is, and which ones are uplinks."""
WITHOUT_DATA: Final = ("helium", "actility", SIGFOX)
"""Servers that leave the data out where an uplink has no bytes."""

Fields = dict[str, tuple[str, ...]]

PRESETS: Final[dict[str, Fields]] = {
    "helium": {  # the console of 2020 to 2023, and today's, which is ChirpStack
        DEVICE: ("/dev_eui", "/deviceInfo/devEui"),
        DATA: ("/payload", "/data"),
        PORT: ("/port", "/fPort"),
        TIME: ("/reported_at", "/time"),
        COUNTER: ("/fcnt", "/fCnt"),
        SESSION: ("/devaddr", "/devAddr"),
        RSSI: ("/hotspots/0/rssi", "/rxInfo/0/rssi"),
        SNR: ("/hotspots/0/snr", "/rxInfo/0/snr"),
        GATEWAY: ("/hotspots/0/name", "/rxInfo/0/gatewayId"),
        DATA_RATE: ("/hotspots/0/spreading", "/txInfo/modulation/lora/spreadingFactor"),
        FREQUENCY: ("/hotspots/0/frequency", "/txInfo/frequency"),
    },
    "loriot": {  # `rx`, or `gw` with a list of gateways
        DEVICE: ("/EUI",),
        DATA: ("/data",),
        ENCODING: (HEX,),
        PORT: ("/port",),
        TIME: ("/ts",),
        COUNTER: ("/fcnt",),
        RSSI: ("/rssi", "/gws/0/rssi"),
        SNR: ("/snr", "/gws/0/snr"),
        GATEWAY: ("/gws/0/gweui",),
        DATA_RATE: ("/dr",),
        FREQUENCY: ("/freq",),
    },
    "actility": {
        DEVICE: ("/DevEUI_uplink/DevEUI",),
        DATA: ("/DevEUI_uplink/payload_hex",),
        ENCODING: (HEX,),
        PORT: ("/DevEUI_uplink/FPort",),
        TIME: ("/DevEUI_uplink/Time",),
        COUNTER: ("/DevEUI_uplink/FCntUp",),
        SESSION: ("/DevEUI_uplink/DevAddr",),
        RSSI: ("/DevEUI_uplink/LrrRSSI",),
        SNR: ("/DevEUI_uplink/LrrSNR",),
        GATEWAY: ("/DevEUI_uplink/Lrrid",),
        DATA_RATE: ("/DevEUI_uplink/SpFact",),
        FREQUENCY: ("/DevEUI_uplink/Frequency",),
    },
    SIGFOX: {  # the names of its variables; a Sigfox message has no port
        DEVICE: ("/device",),
        DATA: ("/data",),
        ENCODING: (HEX,),
        PORT: ("1",),
        TIME: ("/time",),
        COUNTER: ("/seqNumber",),
        RSSI: ("/rssi",),
        SNR: ("/snr",),
        GATEWAY: ("/station",),
    },
}
