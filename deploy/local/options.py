"""Argument types of the command line, and the ports of the platform."""

import argparse
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deploy.platform.errors import LauncherError
from libs.common.contracts.limits import Limits


def number_between(minimum: int, maximum: int) -> Callable[[str], int]:
    """Return an argument type: a whole number in a range."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else None
        if value is None or not minimum <= value <= maximum:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {minimum}..{maximum}")
        return value

    return parse


def parse_positive_number(text: str) -> float:
    """Parse a finite number above 0 (argument type)."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def parse_fraction(text: str) -> float:
    """Parse a number from 0 to 1 (argument type)."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def _parse_not_empty(text: str) -> str:
    """Parse a text that is not empty: an empty address means all (argument type)."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty")
    return text


def _parse_absolute_path(text: str) -> Path:
    """Parse a path and make it absolute for child processes (argument type)."""
    return Path(text).expanduser().resolve()


def parse_limit_change(text: str) -> tuple[str, int | None]:
    """Parse `LIMIT=NUMBER` or `LIMIT=default` (None) (argument type)."""
    name, _, value = text.partition("=")
    names = dict(zip(Limits.__struct_fields__, Limits.__struct_encode_fields__, strict=True))
    name = names.get(name, name)
    if name not in names.values():
        raise argparse.ArgumentTypeError(
            f"{text!r}: unknown limit {name!r}; limits are {', '.join(names.values())}"
        )
    return name, None if value == "default" else number_between(1, 2**53)(value)


_PARSER_BY_ARGUMENT_TYPE: Mapping[str, Callable[[str], Any]] = {
    "absolute path": _parse_absolute_path,
    "fraction": parse_fraction,
    "limit change": parse_limit_change,
    "path": Path,
    "positive number": parse_positive_number,
    "text": _parse_not_empty,
}


def add_option(parser: argparse.ArgumentParser, name: str, **settings: Any) -> None:
    """Add an option of `commands.toml` to a parser."""
    if "type" in settings:
        settings["type"] = _PARSER_BY_ARGUMENT_TYPE[settings["type"]]
    if "range" in settings:
        settings["type"] = number_between(*settings.pop("range"))
    if "environment" in settings:
        value = os.environ.get(settings.pop("environment"))
        settings["default"] = value or settings.get("default")
    parser.add_argument(name, **settings)


DEFAULT_PLAIN_AND_TLS_PORTS_BY_LISTENER: Mapping[str, tuple[int | None, int]] = {
    "port": (8080, 8443),
    "mqtt_port": (1883, 8883),
    "nats_port": (4222, 4222),
    "websocket_port": (None, 8084),
    "certificate_port": (None, 8884),
    "certificate_nats_port": (None, 4223),
}
"""Default ports by listener: without TLS, with TLS; None: closed."""


def read_ports(options: argparse.Namespace) -> dict[str, int | None]:
    """Return the port of each listener, from options or defaults; None: closed.

    Raises `LauncherError` for certificate ports without TLS.
    """
    if (options.certificate_port or options.certificate_nats_port) and not options.tls:
        raise LauncherError("--certificate-port and --certificate-nats-port require --tls")
    return {
        name: getattr(options, name) or ports[options.tls]
        for name, ports in DEFAULT_PLAIN_AND_TLS_PORTS_BY_LISTENER.items()
    }


def open_ports_by_option(ports: Mapping[str, int | None]) -> dict[str, int]:
    """Return the open ports by command-line option, e.g. `--mqtt-port`."""
    return {f"--{name.replace('_', '-')}": port for name, port in ports.items() if port}
