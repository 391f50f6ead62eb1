"""Options that several commands share, and types of arguments."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from libs.common.contracts.limits import Limits


def option(*names: str, **more: Any) -> dict[str, Any]:
    """An argument of a command, as `argparse` takes it; a default may be a function."""
    return {"names": names, "more": more}


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


def _door(name: str, default: int, what: str) -> dict[str, Any]:
    text = f"port of {what} (default: %(default)s)"
    return option(name, type=number(1, 65_535), default=default, metavar="PORT", help=text)


DATA = option(
    "--data",
    metavar="DIR",
    type=_absolute,
    default=lambda: os.environ.get("THINGWAY_DATA") or ".data",
    help="data directory (default: %(default)s; environment: THINGWAY_DATA)",
)
DOORS = (
    _door("--port", 8080, "HTTP API"),
    _door("--mqtt-port", 1883, "MQTT"),
    _door("--nats-port", 4222, "NATS"),
    option(
        "--host",
        type=_given,
        default="127.0.0.1",
        help="address of these doors (default: %(default)s)",
    ),
)
