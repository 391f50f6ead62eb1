"""`thingway up --cluster` with each member in a place of its own: `python -m tests.faults.up`."""

import argparse
import asyncio
from pathlib import Path

from deploy.local import lock
from deploy.local.process import end_with_parent
from deploy.local.servers import Programs
from deploy.local.up import Launcher, Options
from deploy.platform import console


def main() -> None:
    """Run until a signal comes."""
    end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-simulator", action="store_true")
    parser.add_argument("--data", type=Path, required=True)
    for door in ("--port", "--mqtt-port", "--nats-port"):
        parser.add_argument(door, type=int, required=True)
    parser.add_argument("--place", action="append", default=[], metavar="HOST=COMMAND")
    parser.add_argument("--services", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    options = Options(
        data=given.data,
        host="127.0.0.1",
        port=given.port,
        mqtt_port=given.mqtt_port,
        nats_port=given.nats_port,
        websocket_port=None,
        certificate_port=None,
        certificate_nats_port=None,
        tls=False,
        tls_name=[],
        workers=1,
        simulator=False,
        admin_email=console.admin_email(),
        cluster=True,
    )
    places = (place.partition("=") for place in given.place)
    launcher = Launcher(
        options,
        Programs.find(),
        lock.acquire(options.data),
        {host: command.split() for host, _, command in places},
    )
    launcher.service_environment |= dict(setting.split("=", 1) for setting in given.services)
    asyncio.run(launcher.run())


if __name__ == "__main__":
    main()
