"""Node-RED with the flow in → switch → change → store → out, fed over MQTT.

`store` writes the same data as a Thingway run: the log, the reported and the assigned value in the
history and as latest values, each with majority write concern. `out` publishes the event.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from bench.stack import Stack

TOPIC = "bench/in"
"""Input topic of the flow."""
MONGODB = "mongodb@6"
"""npm package of the driver."""
_STORE = """
const {runs, history, latest} = global.get("stores");
const at = new Date(), reported = msg.reported, assigned = msg.payload;
const nodes = ["in", "switch", "change"].map(id => ({id, status: "SUCCESS", at, input: assigned}));
const values = [["temperature", reported], ["benched", assigned]];
await Promise.all([
    runs.insertOne({flow: "bench", status: "SUCCESS", at, nodes}),
    history.insertMany(values.map(([entity, value]) => ({entity, at, value}))),
    latest.bulkWrite(values.map(([entity, value]) => ({
        updateOne: {filter: {_id: entity}, update: {$set: {value, at}}, upsert: true}}))),
]);
return msg;
"""
_SETTINGS = """
const {MongoClient} = require("mongodb");
const database = new MongoClient(%s, {writeConcern: {w: "majority"}}).db("bench");
const stores = Object.fromEntries(
    ["runs", "history", "latest"].map(name => [name, database.collection(name)]));
module.exports = {flowFile: "flows.json", uiPort: 0, uiHost: "127.0.0.1", httpAdminRoot: false,
    httpNodeRoot: false, logging: {console: {level: "error"}}, functionGlobalContext: {stores}};
"""


def _flow(port: int) -> list[dict[str, Any]]:
    value = "payload.properties.temperature"
    rules = [
        {"t": "set", "p": "reported", "pt": "msg", "to": value, "tot": "msg"},
        {"t": "set", "p": "payload", "pt": "msg", "to": value, "tot": "msg"},
        {"t": "set", "p": "topic", "pt": "msg", "to": "bench/out", "tot": "str"},
    ]
    broker = {"broker": "127.0.0.1", "port": port, "protocolVersion": "4", "autoConnect": True}
    position = {
        "z": "tab",
        "x": 1,
        "y": 1,
    }  # Node-RED treats a node without coordinates as settings
    mqtt = {**position, "broker": "broker", "qos": "1"}
    above = {"property": value, "rules": [{"t": "gt", "v": "0", "vt": "num"}], "outputs": 1}
    return [
        {"id": "tab", "type": "tab", "label": "bench"},
        {"id": "broker", "type": "mqtt-broker", "cleansession": True, "keepalive": "60", **broker},
        {"id": "in", "type": "mqtt in", "topic": TOPIC, "datatype": "json", **mqtt,
         "wires": [["switch"]]},
        {"id": "switch", "type": "switch", **position, "propertyType": "msg", **above,
         "checkall": "true", "wires": [["change"]]},
        {"id": "change", "type": "change", **position, "rules": rules, "wires": [["store"]]},
        {"id": "store", "type": "function", **position, "func": _STORE, "outputs": 1,
         "wires": [["out"]]},
        {"id": "out", "type": "mqtt out", "topic": "", "retain": "", **mqtt, "wires": []},
    ]  # fmt: skip


def programs() -> tuple[str, str] | None:
    """Return the paths of `node-red` and `npm`; None unless both are on PATH."""
    node_red, npm = shutil.which("node-red"), shutil.which("npm")
    return (node_red, npm) if node_red and npm else None


@asynccontextmanager
async def running(
    servers: Stack, node_red: str, npm: str
) -> AsyncIterator[tuple[int, Callable[[], int]]]:
    """Run Node-RED with the flow; yield its pid and a counter of output messages."""
    folder: Path = servers.directory / "node-red"
    folder.mkdir()
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)]
    await asyncio.to_thread(subprocess.run, [*install, MONGODB], check=True)
    (folder / "flows.json").write_text(json.dumps(_flow(servers.mqtt_port)))
    (folder / "settings.js").write_text(_SETTINGS % json.dumps(servers.mongo_url))
    arrived = 0

    def count(_client: Any, _data: Any, _message: Any) -> None:
        nonlocal arrived
        arrived += 1

    listener = paho.Client(CallbackAPIVersion.VERSION2)
    listener.on_message = count
    listener.connect("127.0.0.1", servers.mqtt_port)
    listener.subscribe("bench/out", qos=1)
    listener.loop_start()
    command = [node_red, "--userDir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    servers.children.append(process)
    probe = paho.Client(CallbackAPIVersion.VERSION2)
    probe.connect("127.0.0.1", servers.mqtt_port)
    probe.loop_start()
    async with asyncio.timeout(120):
        while not arrived:  # until it has started
            probe.publish(TOPIC, '{"properties":{"temperature":1}}', qos=1)
            await asyncio.sleep(0.5)
    await asyncio.sleep(2)
    yield process.pid, lambda: arrived
    for client in (probe, listener):
        client.disconnect()
        client.loop_stop()
