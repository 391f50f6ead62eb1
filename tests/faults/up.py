"""`thingway up --cluster` with each member in a place of its own: `python -m tests.faults.up`."""

import argparse
import asyncio

from deploy.local import cli, lock
from deploy.local.process import end_with_parent
from deploy.local.servers import ServerPrograms
from deploy.local.up import Launcher, read_options


def main() -> None:
    """Run until a signal comes."""
    end_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--place", action="append", default=[], metavar="HOST=COMMAND")
    parser.add_argument("--services", action="append", default=[], metavar="NAME=VALUE")
    given, asked = parser.parse_known_args()
    words = ["up", "--cluster", "--no-simulator", "--no-console", *asked]
    options = read_options(cli.create_parser().parse_args(words))
    places = (place.partition("=") for place in given.place)
    launcher = Launcher(
        options,
        ServerPrograms.find(),
        lock.acquire(options.data),
        {host: command.split() for host, _, command in places},
    )
    launcher.service_environment |= dict(setting.split("=", 1) for setting in given.services)
    asyncio.run(launcher.run())


if __name__ == "__main__":
    main()
