"""What commands consist of: options that several share, and types of arguments."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deploy.backup.archive import PASSPHRASE
from deploy.platform.errors import LauncherError
from libs.common.contracts.limits import Limits

_MOST_DEVICES = 2000

Option = dict[str, Any]


class Command(NamedTuple):
    """A command: its words, what it does, in words and in code, and what it takes."""

    words: str
    text: str
    run: str
    """Its code, `module:function` of this package, which is imported when it is run.

    It takes what is given, and returns an exit code, or a coroutine that returns one or None.
    """
    options: tuple[Option, ...]

    @classmethod
    def of(cls, words: str, text: str, run: str, *options: Option) -> "Command":
        """A command with its options one after another."""
        return cls(words, text, run, options)


def option(*names: str, **more: Any) -> Option:
    """An argument of a command, as `argparse` takes it; a default may be a function."""
    return {"names": names, "more": more}


def flag(name: str, text: str) -> Option:
    """An option that is given or not."""
    return option(name, action="store_true", help=text)


def file(name: str, text: str) -> Option:
    """An option that names a file."""
    return option(name, type=Path, metavar="FILE", help=text)


def number(least: int, most: int) -> Callable[[str], int]:
    """Make an argument type: a whole number in a range."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {least}..{most}")
        return value

    return parse


def count(name: str, least: int, most: int, text: str, **more: Any) -> Option:
    """An option with a whole number in a range."""
    return option(name, type=number(least, most), metavar="N", help=text, **more)


def positive(text: str) -> float:
    """Argument type: a finite number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def part(text: str) -> float:
    """Argument type: a number from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
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


def _door(name: str, what: str, default: str) -> Option:
    text = f"port of {what} (default: {default})"
    return option(name, type=number(1, 65_535), metavar="PORT", help=text)


DATA = option(
    "--data",
    metavar="DIR",
    type=_absolute,
    default=lambda: os.environ.get("THINGWAY_DATA") or ".data",
    help="data directory (default: %(default)s; environment: THINGWAY_DATA)",
)
_PLAIN: Mapping[str, int | None] = {
    "port": 8080,
    "mqtt_port": 1883,
    "nats_port": 4222,
    "websocket_port": None,
    "certificate_port": None,
    "certificate_nats_port": None,
}
_TLS: Mapping[str, int | None] = {
    "port": 8443,
    "mqtt_port": 8883,
    "nats_port": 4222,
    "websocket_port": 8084,
    "certificate_port": 8884,
    "certificate_nats_port": 4223,
}


def given_ports(given: argparse.Namespace) -> dict[str, int | None]:
    """The ports of the doors by option: those that were given, and the defaults; None: closed.

    Raises `LauncherError` for certificates without TLS.
    """
    defaults = _TLS if given.tls else _PLAIN
    if (given.certificate_port or given.certificate_nats_port) and not given.tls:
        raise LauncherError("devices show certificates with --tls only")
    return {name: getattr(given, name) or port for name, port in defaults.items()}


def port_options(ports: Mapping[str, int | None]) -> dict[str, int]:
    """The open doors by the words of the command line: `--mqtt-port` and its port."""
    return {f"--{name.replace('_', '-')}": port for name, port in ports.items() if port}


DOORS = (
    _door("--port", "HTTP API", "8080; with --tls 8443"),
    _door("--mqtt-port", "MQTT", "1883; with --tls 8883"),
    _door("--nats-port", "NATS", "4222"),
    _door("--websocket-port", "MQTT over WebSocket, at /mqtt", "not open; with --tls 8084"),
    _door("--certificate-port", "MQTT for devices with a certificate", "not open; with --tls 8884"),
    _door("--certificate-nats-port", "NATS for them", "not open; with --tls 4223"),
    flag(
        "--tls",
        "all of these doors speak TLS and nothing else, with certificates of an authority "
        "that is made under DIR/tls",
    ),
    option(
        "--tls-name",
        action="append",
        default=[],
        type=_given,
        metavar="NAME",
        help="with --tls: a further name or address by which clients reach this machine; may be "
        "repeated",
    ),
    option(
        "--host",
        type=_given,
        default="127.0.0.1",
        help="address of these doors (default: %(default)s)",
    ),
)
JSON = flag("--json", "print JSON")
SHARED = (DATA, JSON)
APP_ID = option("id", metavar="ID", type=number(1, 2**53), help="its id")
SN = option("sn", metavar="SN", help="SN of the device, as it is registered")
INTEGRATION_ID = option("id", metavar="ID", help="id of the integration, e.g. 'lamps'")

PLATFORM = (
    DATA,
    option("--url", help="address of another platform; needs both of these:"),
    option("--client-id", metavar="ID", help="client id there"),
    option("--client-secret", metavar="SECRET", help="client secret there"),
)
STORES = (
    DATA,
    option("--mongo-url", metavar="URL", help="MongoDB, when it is not the launcher's; needs:"),
    option("--nats-url", metavar="URL", help="NATS (logins are those of DIR/state.json,"),
    option("--redis-url", metavar="URL", help="Redis    unless the URLs have their own)"),
    option(
        "--bootstrap",
        type=Path,
        metavar="DIR",
        help="whose state.json has the first application and device, if that of --data has not",
    ),
)
BACKUPS = (
    *STORES,
    file("--passphrase-file", f"encrypt or open with this passphrase (environment: {PASSPHRASE})"),
    file("--identity-file", "open with a private key of age (AGE-SECRET-KEY-1…)"),
)
CROWD = (
    count(
        "--devices",
        1,
        _MOST_DEVICES,
        f"how many devices, up to {_MOST_DEVICES}; created when they do not exist",
        required=True,
    ),
    option("--rate", type=positive, required=True, metavar="R", help="reports/s of all together"),
    option("--duration", type=positive, metavar="S", help="seconds (default: until Ctrl-C)"),
)
