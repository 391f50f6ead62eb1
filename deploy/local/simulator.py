"""A simulated device over MQTT: it reports, executes commands and reconnects.

The launcher runs `python -m deploy.local.simulator`, with settings in the environment
(`build_environment`).
"""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import random
import signal
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from deploy.local.supervisor import RestartBackoff
from deploy.platform.bootstrap import read_demo_product
from libs.common.jobs import run_until_first_ends
from libs.common.simulation import SimulatedDevice
from libs.common.tls import parse_mqtt_urls
from libs.common.tsl import ServiceSpec, parse_document

if TYPE_CHECKING:
    import aiomqtt

log = logging.getLogger("simulator")

_HIGH_TEMPERATURE = 30.0

Values = dict[str, Any]


class DemoDevice(SimulatedDevice):
    """A device of the demo product, without its connection."""

    def __init__(self, sn: str, tsl: Values, rng: random.Random) -> None:
        settings = {"led": False, "reporting_interval": {"time": 3}}
        super().__init__(parse_document(tsl, stored=True), rng, settings)
        self.sn = sn
        self._was_hot = False

    def serve(self, service: ServiceSpec) -> Values:
        """Handle a service call: `identify` turns the LED on."""
        return {"led": True} if service.id == "identify" else {}

    def build_event(self) -> Values | None:
        """Return an event if the temperature has just risen to the threshold, else None."""
        temperature = self.measured.get("temperature", 0.0)
        is_hot = temperature >= _HIGH_TEMPERATURE
        rises, self._was_hot = is_hot and not self._was_hot, is_hot
        if not rises:
            return None
        return {"eventId": "high_temperature", "outputs": {"temperature": temperature}}


REPORT_INTERVAL_SECONDS = 3.0
_KEEPALIVE_SECONDS = 20
_QOS = 1


def build_environment(mqtt_url: str, ca_file: str, sn: str, key: str) -> dict[str, str]:
    """Return the environment of the simulator process."""
    return {
        "THINGWAY_MQTT_URL": mqtt_url,
        "THINGWAY_CA_FILE": ca_file,
        "THINGWAY_DEVICE_SN": sn,
        "THINGWAY_DEVICE_KEY": key,
    }


async def run(servers: Iterable[Mapping[str, Any]], key: str, device: DemoDevice) -> None:
    """Stay connected and report until cancelled; reconnect with growing pauses.

    `servers` are the MQTT servers (`parse_mqtt_urls`), tried in turn.
    """
    import aiomqtt  # noqa: PLC0415 - the launcher imports this module for `build_environment`

    loop = asyncio.get_running_loop()
    backoff = RestartBackoff()
    turns = itertools.cycle(servers)
    while True:
        server, started = next(turns), loop.time()
        try:
            async with aiomqtt.Client(
                **server,
                username=device.sn,
                password=key,
                identifier=device.sn,
                keepalive=_KEEPALIVE_SECONDS,
            ) as client:
                await _serve(client, device)
        except aiomqtt.MqttError as error:
            pause = backoff.next_pause_seconds(loop.time() - started)
            log.warning("not connected: %s; reconnecting in %.1f s", error, pause)
            await asyncio.sleep(pause)


async def _serve(client: "aiomqtt.Client", device: DemoDevice) -> None:
    await client.subscribe(f"thing/{device.sn}/down/command", qos=_QOS)
    log.info("connected as %s", device.sn)
    await run_until_first_ends(_report_regularly(client, device), _execute_commands(client, device))


async def _report_regularly(client: "aiomqtt.Client", device: DemoDevice) -> None:
    while True:
        await _send(client, device, "report", {"properties": device.measure()})
        event = device.build_event()
        if event is not None:
            await _send(client, device, "event", event)
        await asyncio.sleep(REPORT_INTERVAL_SECONDS)


async def _execute_commands(client: "aiomqtt.Client", device: DemoDevice) -> None:
    async for message in client.messages:
        try:
            command: dict[str, Any] = json.loads(bytes(message.payload))
            outcome = device.handle(command)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("cannot decode a command: %r", error)
            continue
        log.info("command %s: %s", command["commandId"], outcome.reply["status"])
        await _send(client, device, "reply", outcome.reply)
        if outcome.report:
            await _send(client, device, "report", {"properties": outcome.report})


async def _send(
    client: "aiomqtt.Client", device: DemoDevice, kind: str, body: dict[str, Any]
) -> None:
    await client.publish(f"thing/{device.sn}/up/{kind}", json.dumps(body), qos=_QOS)


async def _main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    sn, key = os.environ["THINGWAY_DEVICE_SN"], os.environ["THINGWAY_DEVICE_KEY"]
    device = DemoDevice(sn, read_demo_product()["tsl"], random.Random())  # noqa: S311 - not a secret
    servers = parse_mqtt_urls(
        os.environ["THINGWAY_MQTT_URL"], os.environ.get("THINGWAY_CA_FILE", "")
    )
    task = asyncio.create_task(run(servers, key, device))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    asyncio.run(_main())
