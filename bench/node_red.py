"""Node-RED running in → switch → change → out, fed over MQTT."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from bench.stack import Stack

TOPIC = "bench/in"
"""What the flow listens to."""


def _flow(port: int) -> list[dict[str, Any]]:
    value = "payload.properties.temperature"
    rules = [
        {"t": "set", "p": "payload", "pt": "msg", "to": value, "tot": "msg"},
        {"t": "set", "p": "topic", "pt": "msg", "to": "bench/out", "tot": "str"},
    ]
    broker = {"broker": "127.0.0.1", "port": port, "protocolVersion": "4", "autoConnect": True}
    place = {"z": "tab", "x": 1, "y": 1}  # a node without one would be taken for settings
    mqtt = {**place, "broker": "broker", "qos": "1"}
    above = {"property": value, "rules": [{"t": "gt", "v": "0", "vt": "num"}], "outputs": 1}
    return [
        {"id": "tab", "type": "tab", "label": "bench"},
        {"id": "broker", "type": "mqtt-broker", "cleansession": True, "keepalive": "60", **broker},
        {"id": "in", "type": "mqtt in", "topic": TOPIC, "datatype": "json", **mqtt,
         "wires": [["switch"]]},
        {"id": "switch", "type": "switch", **place, "propertyType": "msg", **above,
         "checkall": "true", "wires": [["change"]]},
        {"id": "change", "type": "change", **place, "rules": rules, "wires": [["out"]]},
        {"id": "out", "type": "mqtt out", "topic": "", "retain": "", **mqtt, "wires": []},
    ]  # fmt: skip


@asynccontextmanager
async def running(servers: Stack, program: str) -> AsyncIterator[Callable[[], int]]:
    """Node-RED with the flow; tells how many messages have come through."""
    folder: Path = servers.directory / "node-red"
    folder.mkdir()
    (folder / "flows.json").write_text(json.dumps(_flow(servers.mqtt_port)))
    (folder / "settings.js").write_text(
        "module.exports = {flowFile: 'flows.json', uiPort: 0, uiHost: '127.0.0.1',"
        " httpAdminRoot: false, httpNodeRoot: false, logging: {console: {level: 'error'}}};"
    )
    arrived = 0

    def count(_client: Any, _data: Any, _message: Any) -> None:
        nonlocal arrived
        arrived += 1

    listener = paho.Client(CallbackAPIVersion.VERSION2)
    listener.on_message = count
    listener.connect("127.0.0.1", servers.mqtt_port)
    listener.subscribe("bench/out", qos=1)
    listener.loop_start()
    command = [program, "--userDir", str(folder)]
    servers.children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    probe = paho.Client(CallbackAPIVersion.VERSION2)
    probe.connect("127.0.0.1", servers.mqtt_port)
    probe.loop_start()
    async with asyncio.timeout(120):
        while not arrived:  # until it has started
            probe.publish(TOPIC, '{"properties":{"temperature":1}}', qos=1)
            await asyncio.sleep(0.5)
    await asyncio.sleep(2)
    yield lambda: arrived
    for client in (probe, listener):
        client.disconnect()
        client.loop_stop()
