"""Things and their entities: ids and keys, as every service computes them.

A thing has one key, its entities have keys that begin with it:

- a device: `{integration}.device.{identifier}`, its entities `….{member}[.{child}]`;
- an integration: `{integration}.integration`, its entities `….{member}[.{child}]`;
- a custom entity: `system.integration.{identifier}`, which is the key of the entity itself.

A child lies one level below its parent and no deeper: what is nested deeper in a TSL has an
identifier with dots. An entity's id is `thing id * 8192 + member number`. Numbers from 1 on
belong to the members of the thing's TSL and are never given to another one; number 0 is the
custom entity itself, and the last numbers of a device are what every device has beside its TSL.
Thing ids are below 2^40, so that entity ids are below 2^53.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

EntityType = Literal["PROPERTY", "SERVICE", "EVENT"]
ValueType = Literal["STRING", "LONG", "DOUBLE", "BOOLEAN", "BINARY", "OBJECT"]
AccessMod = Literal["R", "W", "RW"]

MEMBERS = 8192
"""Entity ids of one thing."""
LAST_MEMBER = MEMBERS - 1
LAST_DECLARED = LAST_MEMBER - 16
"""The last number of a member of a TSL; what follows is the same for every device."""

STATUS = "@status"
"""Below the key of a device: whether it is ONLINE."""
LOCATION = "@location"
LATITUDE, LONGITUDE, ADDRESS = (
    f"{LOCATION}.@{name}" for name in ("latitude", "longitude", "address")
)
ALARM = "@alarm"
"""What flows listen to, and what consoles know of the newest open alarm that nobody has claimed."""
ALARM_STATUS, ALARM_TIME, ALARM_CONTENT = (
    f"{ALARM}.@alarm_{name}" for name in ("status", "time", "content")
)

DIRECT = "direct"
"""The integration of devices that connect to the platform themselves."""
GENERIC = "generic"
"""The open product: its TSL declares nothing, its devices may report anything."""
SYSTEM = "system"
"""The hidden integration that custom entities belong to."""

_OWN = "~"
_DEVICE = "device"
_INTEGRATION = "integration"


def entity_id(thing_id: int, number: int) -> int:
    """The id of a thing's member."""
    return thing_id * MEMBERS + number


def thing_of(entity: int) -> int:
    """The id of the thing that an entity belongs to."""
    return entity // MEMBERS


def number_of(entity: int) -> int:
    """The number of the member that an entity is."""
    return entity % MEMBERS


def own_sn(thing_id: int) -> str:
    """What a thing that is no device reports under; no SN of a device begins like it."""
    return f"{_OWN}{thing_id}"


def own_thing(sn: str) -> int | None:
    """The thing that reports under `sn`, None for a device."""
    digits = sn.removeprefix(_OWN)
    return int(digits) if digits != sn and re.fullmatch("[1-9][0-9]{0,12}", digits) else None


def device_key(integration: str, identifier: str) -> str:
    """The key of a device."""
    return f"{integration}.{_DEVICE}.{identifier}"


def integration_key(integration: str) -> str:
    """The key of an integration's own thing."""
    return f"{integration}.{_INTEGRATION}"


def member_key(thing_key: str, path: str) -> str:
    """The key of an entity; an empty `path` is the thing itself (custom entities)."""
    return f"{thing_key}.{path}" if path else thing_key


@dataclass(frozen=True, slots=True)
class KeyParts:
    """What an entity key says."""

    integration: str
    device: str | None
    """The device's identifier, None for what belongs to the integration itself."""
    path: str
    """The member's path below the thing: `{member}` or `{member}.{child}`."""

    @property
    def thing_key(self) -> str:
        """The key of the device or of the integration."""
        if self.device is None:
            return integration_key(self.integration)
        return device_key(self.integration, self.device)


def split_key(key: str) -> KeyParts | None:
    """Take an entity key apart; None when it cannot be one.

    Integration ids and identifiers have no dots, so there is one way to read a key.
    """
    integration, _, rest = key.partition(".")
    kind, _, rest = rest.partition(".")
    if not integration or not rest:
        return None
    if kind == _INTEGRATION:
        return KeyParts(integration, None, rest)
    identifier, _, path = rest.partition(".")
    if kind != _DEVICE or not identifier or not path:
        return None
    return KeyParts(integration, identifier, path)


def is_custom(key: str) -> bool:
    """Whether an entity key is that of a custom entity, or of a part of one."""
    return key.startswith(f"{SYSTEM}.{_INTEGRATION}.")


def flattened(properties: Mapping[str, Any]) -> dict[str, Any]:
    """`{path: value}` of reported properties, as entities have them.

    The members of an object are entities of their own at every level, the object itself is
    none that has a value; an array is one value.
    """
    return dict(_leaves("", properties))


def _leaves(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
