"""Options that several commands share, and argument types."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from deploy.backup.archive_key import PASSPHRASE_VARIABLE
from deploy.platform.errors import LauncherError
from libs.common.contracts.limits import Limits

_MAX_DEVICES = 2000

Option = dict[str, Any]


class Command(NamedTuple):
    """A command of `thingway`."""

    words: str
    text: str
    run: str
    """`module:function` in this package, imported when the command runs.

    The function gets the parsed arguments. It returns an exit code, or a coroutine that returns an
    exit code or None.
    """
    options: tuple[Option, ...]


def define_command(words: str, text: str, run: str, *options: Option) -> Command:
    """Return a command with these options."""
    return Command(words, text, run, options)


def option(*names: str, **settings: Any) -> Option:
    """Return an argument for `argparse`; its default may be a function."""
    return {"names": names, "settings": settings}


def flag(name: str, text: str) -> Option:
    """Return an option without a value."""
    return option(name, action="store_true", help=text)


def file(name: str, text: str) -> Option:
    """Return an option that names a file."""
    return option(name, type=Path, metavar="FILE", help=text)


def number(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return an argument type: a whole number in a range."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else None
        if value is None or not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {minimum}..{maximum}")
        return value

    return parse


def count(name: str, least: int, maximum: int, text: str, **more: Any) -> Option:
    """Return an option whose value is a whole number in a range."""
    return option(name, type=number(least, maximum), metavar="N", help=text, **more)


def positive(text: str) -> float:
    """Parse a finite number above 0 (argument type)."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def fraction(text: str) -> float:
    """Parse a number from 0 to 1 (argument type)."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def _not_empty(text: str) -> str:
    """Parse a text that is not empty (argument type); an empty address means all."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _absolute(text: str) -> Path:
    """Parse a path and make it absolute for child processes (argument type)."""
    return Path(text).expanduser().resolve()


def limit_change(text: str) -> tuple[str, int | None]:
    """Parse `LIMIT=NUMBER` or `LIMIT=default` (None) (argument type)."""
    name, _, value = text.partition("=")
    names = dict(zip(Limits.__struct_fields__, Limits.__struct_encode_fields__, strict=True))
    name = names.get(name, name)
    if name not in names.values():
        raise argparse.ArgumentTypeError(
            f"{text!r}: unknown limit {name!r}; limits are {', '.join(names.values())}"
        )
    return name, None if value == "default" else number(1, 2**53)(value)


def _port(name: str, what: str, default: str) -> Option:
    text = f"port of {what} (default: {default})"
    return option(name, type=number(1, 65_535), metavar="PORT", help=text)


DATA = option(
    "--data",
    metavar="DIR",
    type=_absolute,
    default=lambda: os.environ.get("THINGWAY_DATA") or ".data",
    help="data directory (default: %(default)s; environment: THINGWAY_DATA)",
)
PORTS: Mapping[str, tuple[int | None, int]] = {
    "port": (8080, 8443),
    "mqtt_port": (1883, 8883),
    "nats_port": (4222, 4222),
    "websocket_port": (None, 8084),
    "certificate_port": (None, 8884),
    "certificate_nats_port": (None, 4223),
}
"""Default port of each listener without and with TLS; None: closed."""


def given_ports(options: argparse.Namespace) -> dict[str, int | None]:
    """Return the port of each listener by option name; None: closed.

    Raises `LauncherError` for certificate ports without TLS.
    """
    if (options.certificate_port or options.certificate_nats_port) and not options.tls:
        raise LauncherError("--certificate-port and --certificate-nats-port require --tls")
    return {name: getattr(options, name) or ports[options.tls] for name, ports in PORTS.items()}


def port_options(ports: Mapping[str, int | None]) -> dict[str, int]:
    """Return the open ports by command-line option, e.g. `--mqtt-port`."""
    return {f"--{name.replace('_', '-')}": port for name, port in ports.items() if port}


LISTENERS = (
    _port("--port", "HTTP API", "8080; with --tls 8443"),
    _port("--mqtt-port", "MQTT", "1883; with --tls 8883"),
    _port("--nats-port", "NATS", "4222"),
    _port("--websocket-port", "MQTT over WebSocket, at /mqtt", "closed; with --tls 8084"),
    _port("--certificate-port", "MQTT for devices with a certificate", "closed; with --tls 8884"),
    _port("--certificate-nats-port", "NATS for these devices", "closed; with --tls 4223"),
    flag(
        "--tls",
        "serve all these ports with TLS only; the certificate authority is created in DIR/tls",
    ),
    option(
        "--tls-name",
        action="append",
        default=[],
        type=_not_empty,
        metavar="NAME",
        help="with --tls: another host name or address of this machine; may be repeated",
    ),
    option(
        "--host",
        type=_not_empty,
        default="127.0.0.1",
        help="listen address of these ports (default: %(default)s)",
    ),
)
JSON = flag("--json", "print JSON")
SHARED = (DATA, JSON)
APP_ID = option("id", metavar="ID", type=number(1, 2**53), help="id of the application")
SN = option("sn", metavar="SN", help="serial number (SN) of the device, as registered")
INTEGRATION_ID = option("id", metavar="ID", help="id of the integration, e.g. 'lamps'")

PLATFORM = (
    DATA,
    option("--url", help="address of another platform; requires the next two:"),
    option("--client-id", metavar="ID", help="client id at that platform"),
    option("--client-secret", metavar="SECRET", help="client secret at that platform"),
)


def _store_url(store: str, text: str) -> Option:
    variable = f"THINGWAY_{store.upper().replace('-', '_')}_URL"
    return option(
        f"--{store}-url",
        metavar="URL",
        default=lambda: os.environ.get(variable),
        help=f"{text} (environment: {variable})",
    )


STORES = (
    DATA,
    _store_url("mongo", "MongoDB elsewhere; needs the next two"),
    _store_url("nats", "NATS; login from the URL or DIR/state.json"),
    _store_url("redis", "Redis; login from the URL or DIR/state.json"),
    option(
        "--bootstrap",
        type=Path,
        metavar="DIR",
        help="directory of a state.json with the first application and device, if DIR has none",
    ),
)
KEYS = (
    file("--passphrase-file", f"passphrase for the backup (environment: {PASSPHRASE_VARIABLE})"),
    file("--identity-file", "decrypt with the age private key in FILE (AGE-SECRET-KEY-1…)"),
)
BACKUPS = (*STORES, *KEYS)
VERIFICATION = (
    DATA,
    _store_url("nats", "NATS of the platform that shows the result as a metric"),
    *KEYS,
    option(
        "--scratch",
        type=Path,
        metavar="DIR",
        help="directory for the data of temporary servers (default: that of the system)",
    ),
    _store_url("scratch-mongo", "empty MongoDB without login, instead of own servers"),
    _store_url("scratch-nats", "empty NATS with JetStream, without login"),
)
SIMULATION = (
    count(
        "--devices",
        1,
        _MAX_DEVICES,
        f"number of devices, up to {_MAX_DEVICES}; missing devices are created",
        required=True,
    ),
    option("--rate", type=positive, required=True, metavar="R", help="total reports per second"),
    option("--duration", type=positive, metavar="S", help="seconds (default: until Ctrl-C)"),
)
