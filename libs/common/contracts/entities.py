"""Entities, as services request them from `device`: `rpc.device.{operation}`.

`libs.common.things` describes keys and ids. `device` ignores grants here: a service that acts for a
user filters the answer (`Grants.allows_entity`).
"""

from typing import Any

import msgspec

from libs.common.things import AccessMod, EntityType, ValueType

RESOLVE_ENTITIES = "rpc.device.resolve_entities"

MAX_RESOLVED_KEYS = 10_000
"""Maximum number of keys and ids of a request."""


class ResolveEntities(msgspec.Struct, rename="camel", kw_only=True):
    """`resolve_entities`: find entities by key and by id."""

    tenant: str
    keys: list[str] = []
    ids: list[int] = []


class ResolvedEntity(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """An existing entity."""

    id: int
    key: str
    thing_id: int
    """The device's id, if the entity belongs to a device."""
    integration: str
    device: bool
    """Whether the thing is a device; then grants of the device include the entity."""
    member: str
    """Path below the thing's key; empty for a custom entity itself."""
    parent: str | None = None
    """Key of the OBJECT that contains it."""
    name: str
    type: EntityType
    value_type: ValueType
    access_mod: AccessMod | None = None
    """Access to the entity; `W` for services and events."""
    writable: bool = False
    """Whether it is a property that can be written."""
    write_only: bool = False
    """Whether it is a property whose value nobody can read."""
    value_attribute: dict[str, Any] = {}
    device_name: str | None = None
    group: int | None = None
    """The group of its device."""


class ResolvedEntities(msgspec.Struct):
    """Answer of `resolve_entities`, without duplicates; unknown entities are omitted."""

    entities: list[ResolvedEntity]


INTEGRATION_ENTITIES = "rpc.device.integration_entities"


class DescribeIntegrationEntities(msgspec.Struct):
    """`integration_entities`: entities of the integration itself, not of its devices."""

    tenant: str
    integration: str


class ThingEntity(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """An entity with its latest value."""

    id: int
    key: str
    parent: str | None = None
    name: str
    description: str | None = None
    type: EntityType
    value_type: ValueType
    access_mod: AccessMod | None = None
    value_attribute: dict[str, Any] = {}
    value: Any = None


class ThingEntities(msgspec.Struct):
    """Answer of `integration_entities`: parents, each followed by its children."""

    entities: list[ThingEntity]


ENTITY_VALUES = "rpc.device.entity_values"
UPDATE_ENTITIES = "rpc.device.update_entities"
CALL_SERVICE = "rpc.device.call_service"


class ReadEntities(msgspec.Struct):
    """`entity_values`: read latest values."""

    tenant: str
    keys: list[str]


class EntityValues(msgspec.Struct):
    """Answer of `entity_values`: null without a value; unknown entities are omitted."""

    values: dict[str, Any]
    write_only: list[str] = []
    """Keys whose value is null because nobody can read it."""


class EntityUpdate(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Properties to set, by key; entities that are not writable properties are ignored."""

    tenant: str
    exchange: dict[str, Any]
    hops: int = 0
    """Hops of the messages that the values cause (`libs.common.bus.hops`)."""
    dry_run: bool = False
    """Validate the values without setting them."""


class UpdateEntities(msgspec.Struct):
    """`update_entities`: process updates independently and concurrently."""

    updates: list[EntityUpdate]


class UpdateOutcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The result of an update."""

    keys: list[str] = []
    """Keys that are set. A key of a device has its new value only when the device has answered."""
    write_only: list[str] = []
    """Those of `keys` whose values nobody can read."""
    status: int = 0
    """Status of the error (`libs.common.errors`); 0 without an error."""
    code: str = ""
    error: str = ""


class UpdatedEntities(msgspec.Struct):
    """Answer of `update_entities`: one result per update, in the same order."""

    outcomes: list[UpdateOutcome]


class CallServices(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`call_service`: call services by the keys of their inputs, or by their own keys."""

    tenant: str
    exchange: dict[str, Any]
    hops: int = 0
    dry_run: bool = False
    """Validate the inputs without calling services; there are no outputs."""


class CalledServices(msgspec.Struct):
    """Answer of `call_service`: the outputs of all called services, by name."""

    outputs: dict[str, Any]
