"""Options that several commands share, and what `thingway up` was asked for."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deploy.local import ports
from deploy.local.state import Addresses
from libs.common.contracts.limits import Limits


@dataclass(frozen=True, kw_only=True)
class Options:
    """What `thingway up` was asked for."""

    data: Path
    host: str
    port: int
    mqtt_port: int
    nats_port: int
    workers: int
    simulator: bool
    admin_email: str

    @property
    def addresses(self) -> Addresses:
        """Where clients on this machine will find the platform."""
        host = ports.reachable(self.host)
        return Addresses(
            base_url=f"http://{host}:{self.port}",
            mqtt_url=f"mqtt://{host}:{self.mqtt_port}",
            nats_url=f"nats://{host}:{self.nats_port}",
        )


def add_data(parser: argparse.ArgumentParser) -> None:
    """Take `--data DIR`."""
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=_absolute,
        default=os.environ.get("THINGWAY_DATA") or ".data",
        help="data directory (default: %(default)s; environment: THINGWAY_DATA)",
    )


def add_doors(parser: argparse.ArgumentParser) -> None:
    """Take the address and the ports of the public doors."""
    doors = {
        "--port": (8080, "HTTP API"),
        "--mqtt-port": (1883, "MQTT"),
        "--nats-port": (4222, "NATS"),
    }
    for option, (default, name) in doors.items():
        parser.add_argument(
            option,
            type=number(1, 65_535),
            default=default,
            metavar="PORT",
            help=f"port of {name} (default: %(default)s)",
        )
    parser.add_argument(
        "--host",
        type=_given,
        default="127.0.0.1",
        help="address of these doors (default: %(default)s)",
    )


def number(least: int, most: int) -> Callable[[str], int]:
    """Make an argument type: a whole number in a range."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {least}..{most}")
        return value

    return parse


def positive(text: str) -> float:
    """Argument type: a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _given(text: str) -> str:
    """Argument type: a text that is not empty; as an address that would be every one."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _absolute(text: str) -> Path:
    """Argument type: a path that also holds for children with another working directory."""
    return Path(text).expanduser().resolve()


def change_of_limit(text: str) -> tuple[str, int | None]:
    """Argument type: `LIMIT=NUMBER`, or `LIMIT=default` (None), in camelCase or snake_case."""
    name, _, value = text.partition("=")
    names = dict(zip(Limits.__struct_fields__, Limits.__struct_encode_fields__, strict=True))
    name = names.get(name, name)
    if name not in names.values():
        raise argparse.ArgumentTypeError(
            f"{text!r}: there is no limit {name!r}; there are {', '.join(names.values())}"
        )
    return name, None if value == "default" else number(1, 2**53)(value)
