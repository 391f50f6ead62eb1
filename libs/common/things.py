"""Ids and keys of things and their entities, as every service computes them.

A thing has a key, which is the prefix of its entities' keys:

- a device: `{integration}.device.{identifier}`, its entities `….{member}[.{child}]`;
- an integration: `{integration}.integration`, its entities `….{member}[.{child}]`;
- a custom entity: `system.integration.{identifier}`, which is the key of the entity itself.

A child is one level below its parent and no deeper: deeper members of a TSL have an identifier with
dots. An entity's id is `thing id * 8192 + member number`. Numbers from 1 on belong to the members
of the thing's TSL and are never reused. Number 0 is the custom entity itself. The last numbers of a
device are the entities that every device has in addition to its TSL. Thing ids are below 2^40, so
that entity ids are below 2^53.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

EntityType = Literal["PROPERTY", "SERVICE", "EVENT"]
ValueType = Literal["STRING", "LONG", "DOUBLE", "BOOLEAN", "BINARY", "OBJECT"]
AccessMod = Literal["R", "W", "RW"]

MEMBERS_PER_THING = 8192
"""Number of entity ids of a thing."""
MAX_MEMBER_NUMBER = MEMBERS_PER_THING - 1
MAX_TSL_MEMBER_NUMBER = MAX_MEMBER_NUMBER - 16
"""The last number for a member of a TSL; higher numbers are equal for every device."""

STATUS_PATH = "@status"
"""Path below the key of a device: whether it is ONLINE."""
LOCATION_PATH = "@location"
LATITUDE_PATH, LONGITUDE_PATH, ADDRESS_PATH = (
    f"{LOCATION_PATH}.@{name}" for name in ("latitude", "longitude", "address")
)
ALARM_PATH = "@alarm"
"""Path of the alarm entity: flows listen to it, and consoles show the newest open, unclaimed
alarm."""
ALARM_STATUS_PATH, ALARM_TIME_PATH, ALARM_CONTENT_PATH = (
    f"{ALARM_PATH}.@alarm_{name}" for name in ("status", "time", "content")
)

DIRECT_INTEGRATION = "direct"
"""The integration of devices that connect directly to the platform."""
GENERIC_MODEL = "generic"
"""The model of a built-in product. Its TSL is empty, and its devices may report anything."""
SYSTEM_INTEGRATION = "system"
"""The hidden integration of custom entities."""

_INTERNAL_PREFIX = "~"
_DEVICE_SEGMENT = "device"
_INTEGRATION_SEGMENT = "integration"


def entity_id(thing_id: int, number: int) -> int:
    """Return the id of a thing's member."""
    return thing_id * MEMBERS_PER_THING + number


def get_entity_thing_id(entity: int) -> int:
    """Return the id of an entity's thing."""
    return entity // MEMBERS_PER_THING


def get_member_number(entity: int) -> int:
    """Return the member number of an entity."""
    return entity % MEMBERS_PER_THING


def internal_sn(thing_id: int) -> str:
    """Return the SN for reports of a thing that is not a device; device SNs have no `~`."""
    return f"{_INTERNAL_PREFIX}{thing_id}"


def parse_internal_sn(sn: str) -> int | None:
    """Return the id of the thing that reports under `sn`; None for a device."""
    digits = sn.removeprefix(_INTERNAL_PREFIX)
    return int(digits) if digits != sn and re.fullmatch("[1-9][0-9]{0,12}", digits) else None


def device_key(integration: str, identifier: str) -> str:
    """Return the key of a device."""
    return f"{integration}.{_DEVICE_SEGMENT}.{identifier}"


def integration_key(integration: str) -> str:
    """Return the key of an integration's own thing."""
    return f"{integration}.{_INTEGRATION_SEGMENT}"


def member_key(thing_key: str, path: str) -> str:
    """Return the key of an entity; an empty `path` is the thing itself (custom entities)."""
    return f"{thing_key}.{path}" if path else thing_key


@dataclass(frozen=True, slots=True)
class KeyParts:
    """The parts of an entity key."""

    integration: str
    device: str | None
    """The device's identifier; None for an entity of the integration itself."""
    path: str
    """The member's path below the thing: `{member}` or `{member}.{child}`."""

    @property
    def thing_key(self) -> str:
        """Return the key of the device or of the integration."""
        if self.device is None:
            return integration_key(self.integration)
        return device_key(self.integration, self.device)


def split_entity_key(key: str) -> KeyParts | None:
    """Return the parts of an entity key; None if it is invalid.

    Integration ids and identifiers have no dots, so a key is unambiguous.
    """
    integration, _, rest = key.partition(".")
    kind, _, rest = rest.partition(".")
    if not integration or not rest:
        return None
    if kind == _INTEGRATION_SEGMENT:
        return KeyParts(integration, None, rest)
    identifier, _, path = rest.partition(".")
    if kind != _DEVICE_SEGMENT or not identifier or not path:
        return None
    return KeyParts(integration, identifier, path)


def is_custom_key(key: str) -> bool:
    """Return whether an entity key belongs to a custom entity or to a part of one."""
    return key.startswith(f"{SYSTEM_INTEGRATION}.{_INTEGRATION_SEGMENT}.")


def flatten_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return reported properties as `{path: value}`, like their entities.

    The members of an object are separate entities at every level, and the object itself has no
    value; an array is a single value.
    """
    return dict(_leaves("", properties))


def _leaves(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
