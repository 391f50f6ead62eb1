"""Checks what is asked of devices against their TSL: drafts of commands."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from libs.common.errors import InvalidInput, TooLarge
from libs.common.http.ids import parse_id
from libs.common.tsl import Fault, InvalidValues
from libs.common.tsl.limits import unstorable
from services.device.commands.model import Config, Draft, Kind, concealed
from services.device.things.model import Thing

MOST_DEVICES = 1000
"""Devices of one `POST /tasks`."""
LAYOUTS = {"PROFILE": "values", "TSL": "properties"}
"""Types of configurations, and what each has."""
LARGEST_COMMAND = 256 * 1024
"""Bytes of one command, which is one message of the bus."""
LARGEST_REQUEST = 8 * 1024**2
"""Bytes of all commands of one request, which is one transaction."""


def check_size(drafts: Iterable[Draft]) -> None:
    """Raise `TooLarge` when one transaction cannot hold all commands."""
    if sum(len(draft.encoded) for draft in drafts) > LARGEST_REQUEST:
        raise TooLarge(f"the commands of a request may have {LARGEST_REQUEST} bytes")


def check_layout(kind: str, config: Config) -> None:
    """Check what a configuration of a kind has, whichever device it is for."""
    kind = kind.upper()
    if kind not in LAYOUTS:
        raise InvalidInput("must be PROFILE or TSL", field="type")
    given = {"properties": config.properties, "values": config.values}
    for name, value in given.items():
        if name != LAYOUTS[kind] and value is not None:
            raise InvalidInput(f"is nothing of type {kind}", field=f"config.{name}")
    if not given[LAYOUTS[kind]]:
        raise InvalidInput("must not be empty", field=f"config.{LAYOUTS[kind]}")
    faults = [
        Fault(f"config.values[{index}]", reason)
        for index, entry in enumerate(config.values or [])
        if (reason := unstorable({"key": entry.key, "value": entry.value}))
    ]
    if faults:
        raise InvalidInput.of_faults(faults)


def draft_config(thing: Thing, kind: str, config: Config, current: dict[str, Any]) -> Draft:
    """Check a configuration whose layout is right; `current` is what the thing has and is to have.

    `version` and, as the type of a TSL, `type` may name the TSL version that the thing follows.
    """
    kind, follows = kind.upper(), thing.tsl_version
    if config.version is not None and config.version != follows:
        raise InvalidInput(f"must be {follows}, which the device follows", field="config.version")
    types = {kind, follows.upper()} if kind == "TSL" else {kind}
    if config.type is not None and config.type.upper() not in types:
        raise InvalidInput(f"must be {kind} as type is", field="config.type")
    if kind == "TSL":
        return draft_properties(thing, config.properties or {}, "config.properties", current)
    values = [{"key": entry.key, "value": entry.value} for entry in config.values or []]
    return draft_command(thing, "SET_PROFILE", {"values": values})


def error_of_device(device_id: int, error: InvalidInput) -> InvalidInput:
    """Return an error that also names the device."""
    about = f"(device {device_id})"
    if error.faults:
        return InvalidInput.of_faults(
            [msgspec.structs.replace(one, reason=f"{one.reason} {about}") for one in error.faults]
        )
    return InvalidInput(f"{error.message} {about}", field=error.field, code=error.code)


def draft_properties(
    thing: Thing, properties: dict[str, Any], field: str, current: dict[str, Any]
) -> Draft:
    """Check a property update; `current` is what the thing has, `field` where faults are."""
    try:
        whole = thing.tsl.check_write(properties, current)
    except InvalidValues as error:
        prefix = field.removesuffix("properties")
        faults = [msgspec.structs.replace(one, path=prefix + one.path) for one in error.faults]
        raise InvalidInput.of_faults(faults) from error
    draft = draft_command(thing, "SET_PROPERTIES", {"properties": whole})
    return replace(draft, given=properties) if is_partial(properties) else draft


def is_partial(properties: dict[str, Any]) -> bool:
    """Whether a STRUCT may be given in part."""
    return any(isinstance(value, dict) for value in properties.values())


def draft_command(thing: Thing, kind: Kind, payload: dict[str, Any]) -> Draft:
    """A draft of a command that the bus can carry."""
    encoded = msgspec.json.encode(payload)
    if len(encoded) > LARGEST_COMMAND:
        raise TooLarge(f"a command may have {LARGEST_COMMAND} bytes")
    shown, write_only = concealed(kind, payload, thing.tsl)
    return Draft(thing, kind, shown, encoded, payload if write_only else None, write_only)


def read_device_ids(given: "list[int | str] | str") -> list[int]:
    """Read `deviceIds`: numbers, decimal text, or text with commas or semicolons."""
    parts = given if isinstance(given, list) else [given]
    ids: list[int] = []
    for part in parts:
        named = re.split(" *[,;] *", part) if isinstance(part, str) else [part]
        ids += [parse_id(one, "deviceIds") for one in named]
    unique = list(dict.fromkeys(ids))
    if not unique or len(unique) > MOST_DEVICES:
        raise InvalidInput(f"must name 1 to {MOST_DEVICES} devices", field="deviceIds")
    return unique
