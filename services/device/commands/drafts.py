"""Checks of requested changes against the TSL; the result is a draft of a command."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from libs.common.errors import InvalidInput, TooLarge
from libs.common.http.ids import parse_id
from libs.common.tsl import Fault, InvalidValues
from libs.common.tsl.limits import explain_unstorable
from services.device.commands.model import CommandDraft, CommandKind, Config, conceal_payload
from services.device.things.model import Thing

MAX_TASK_DEVICES = 1000
"""Maximum number of devices in `POST /tasks`."""
REQUIRED_FIELD_BY_TYPE = {"PROFILE": "values", "TSL": "properties"}
"""Types of configurations and the field that each requires."""
MAX_COMMAND_BYTES = 256 * 1024
"""Maximum bytes of a command's payload as JSON. A command is one message on the bus."""
MAX_TOTAL_COMMAND_BYTES = 8 * 1024**2
"""Maximum bytes of the payloads of all commands of a request. One transaction stores them."""


def check_total_size(drafts: Iterable[CommandDraft]) -> None:
    """Raise `TooLarge` when the drafts together exceed `MAX_TOTAL_COMMAND_BYTES`."""
    if sum(len(draft.encoded) for draft in drafts) > MAX_TOTAL_COMMAND_BYTES:
        raise TooLarge(f"the commands of a request must not exceed {MAX_TOTAL_COMMAND_BYTES} bytes")


def check_layout(kind: str, config: Config) -> None:
    """Raise `InvalidInput` unless a configuration has the field of type `kind` and no other.

    An unknown type and profile values that cannot be stored are also rejected.
    """
    kind = kind.upper()
    if kind not in REQUIRED_FIELD_BY_TYPE:
        raise InvalidInput("must be PROFILE or TSL", field="type")
    given_fields = {"properties": config.properties, "values": config.values}
    for name, value in given_fields.items():
        if name != REQUIRED_FIELD_BY_TYPE[kind] and value is not None:
            raise InvalidInput(
                f"must be absent in a configuration of type {kind}", field=f"config.{name}"
            )
    if not given_fields[REQUIRED_FIELD_BY_TYPE[kind]]:
        raise InvalidInput("must not be empty", field=f"config.{REQUIRED_FIELD_BY_TYPE[kind]}")
    faults = [
        Fault(f"config.values[{index}]", reason)
        for index, entry in enumerate(config.values or [])
        if (reason := explain_unstorable({"key": entry.key, "value": entry.value}))
    ]
    if faults:
        raise InvalidInput.from_faults(faults)


def draft_config(thing: Thing, kind: str, config: Config, current: dict[str, Any]) -> CommandDraft:
    """Return the draft of a configuration that `check_layout` accepts; raise `InvalidInput`.

    `current` has the thing's values and pending settings. If present, `config.version` must be the
    TSL version of the thing. If present, `config.type` must equal `kind`, or for TSL the TSL
    version.
    """
    kind, follows = kind.upper(), thing.tsl_version
    if config.version is not None and config.version != follows:
        raise InvalidInput(
            f"must be {follows}, the TSL version of the device", field="config.version"
        )
    types = {kind, follows.upper()} if kind == "TSL" else {kind}
    if config.type is not None and config.type.upper() not in types:
        raise InvalidInput(f"must be {kind}, the type of the task", field="config.type")
    if kind == "TSL":
        return draft_properties(thing, config.properties or {}, "config.properties", current)
    values = [{"key": entry.key, "value": entry.value} for entry in config.values or []]
    return draft_command(thing, "SET_PROFILE", {"values": values})


def add_device_to_error(device_id: int, error: InvalidInput) -> InvalidInput:
    """Return an error whose text also names the device."""
    about = f"(device {device_id})"
    if error.faults:
        return InvalidInput.from_faults(
            [
                msgspec.structs.replace(fault, reason=f"{fault.reason} {about}")
                for fault in error.faults
            ]
        )
    return InvalidInput(f"{error.message} {about}", field=error.field, code=error.code)


def draft_properties(
    thing: Thing, properties: dict[str, Any], field: str, current: dict[str, Any]
) -> CommandDraft:
    """Return the draft of a property update; raise `InvalidInput`.

    `current` has the thing's values. Faults have paths below `field`.
    """
    try:
        whole = thing.tsl.check_write(properties, current)
    except InvalidValues as error:
        prefix = field.removesuffix("properties")
        faults = [
            msgspec.structs.replace(fault, path=prefix + fault.path) for fault in error.faults
        ]
        raise InvalidInput.from_faults(faults) from error
    draft = draft_command(thing, "SET_PROPERTIES", {"properties": whole})
    return replace(draft, given=properties) if has_struct(properties) else draft


def has_struct(properties: dict[str, Any]) -> bool:
    """Return whether the properties include a STRUCT, which may be partial."""
    return any(isinstance(value, dict) for value in properties.values())


def draft_command(thing: Thing, kind: CommandKind, payload: dict[str, Any]) -> CommandDraft:
    """Return the draft of a command; raise `TooLarge`."""
    encoded = msgspec.json.encode(payload)
    if len(encoded) > MAX_COMMAND_BYTES:
        raise TooLarge(f"a command must not exceed {MAX_COMMAND_BYTES} bytes")
    visible_payload, write_only = conceal_payload(kind, payload, thing.tsl)
    return CommandDraft(
        thing, kind, visible_payload, encoded, payload if write_only else None, write_only
    )


def parse_device_ids(device_ids: "list[int | str] | str") -> list[int]:
    """Parse `deviceIds`: numbers, decimal text, or text with commas or semicolons.

    Returns each id once. Raises `InvalidInput` unless 1 to `MAX_TASK_DEVICES` ids remain.
    """
    parts = device_ids if isinstance(device_ids, list) else [device_ids]
    ids: list[int] = []
    for part in parts:
        texts = re.split(" *[,;] *", part) if isinstance(part, str) else [part]
        ids += [parse_id(device_id, "deviceIds") for device_id in texts]
    unique = list(dict.fromkeys(ids))
    if not unique or len(unique) > MAX_TASK_DEVICES:
        raise InvalidInput(f"must name 1 to {MAX_TASK_DEVICES} devices", field="deviceIds")
    return unique
