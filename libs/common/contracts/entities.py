"""Entities, as services ask `device` for them: `rpc.device.{operation}`.

Keys and ids are those of `libs.common.things`. Nothing here looks at grants: who asks on
behalf of a user filters by them (`Grants.device`, `Grants.entity`).
"""

from typing import Any

import msgspec

from libs.common.things import AccessMod, EntityType, ValueType

RESOLVE = "rpc.device.resolve_entities"

MOST = 10_000
"""Most keys and ids of one question."""


class ResolveEntities(msgspec.Struct, rename="camel", kw_only=True):
    """`resolve_entities`: by key, by id, or some of each."""

    tenant: str
    keys: list[str] = []
    ids: list[int] = []


class ResolvedEntity(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """An entity that there is."""

    id: int
    key: str
    thing_id: int
    """The device's id, when it is a device's."""
    integration: str
    device: bool
    """Whether the thing is a device; then grants of the device hold for it."""
    member: str
    """Path below the thing's key; empty for a custom entity itself."""
    parent: str | None = None
    """Key of the OBJECT that it is a child of."""
    name: str
    type: EntityType
    value_type: ValueType
    access_mod: AccessMod | None = None
    """`W` of services and events."""
    writable: bool = False
    """Whether it is a property that can be written."""
    write_only: bool = False
    """Whether it is a property whose value nobody can read."""
    value_attribute: dict[str, Any] = {}
    device_name: str | None = None
    group: int | None = None
    """The group of its device."""


class ResolvedEntities(msgspec.Struct):
    """Answer of `resolve_entities`: what is unknown is left out, nothing comes twice."""

    entities: list[ResolvedEntity]


INTEGRATION_ENTITIES = "rpc.device.integration_entities"


class DescribeIntegrationEntities(msgspec.Struct):
    """`integration_entities`: of the integration itself, not of its devices."""

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


VALUES = "rpc.device.entity_values"
UPDATE = "rpc.device.update_entities"
CALL = "rpc.device.call_service"


class ReadEntities(msgspec.Struct):
    """`entity_values`: latest values."""

    tenant: str
    keys: list[str]


class EntityValues(msgspec.Struct):
    """Answer of `entity_values`: null for one without a value, what is unknown is left out."""

    values: dict[str, Any]
    write_only: list[str] = []
    """Those that are null because nobody can read them."""


class EntityUpdate(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Properties to set, by key; what is no writable property is passed over."""

    tenant: str
    exchange: dict[str, Any]
    hops: int = 0
    """Of what the values lead to (`libs.common.bus.hops`)."""
    dry_run: bool = False
    """Judge them and set nothing."""


class UpdateEntities(msgspec.Struct):
    """`update_entities`: each of them by itself, beside each other and in no order."""

    updates: list[EntityUpdate]


class UpdateOutcome(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What became of one update."""

    keys: list[str] = []
    """Those that were set; a device's when it answers."""
    write_only: list[str] = []
    """Those among them whose values nobody can read."""
    status: int = 0
    """Of the error (`libs.common.errors`), 0 when there was none."""
    code: str = ""
    error: str = ""


class UpdatedEntities(msgspec.Struct):
    """Answer of `update_entities`: an outcome for each, in their order."""

    outcomes: list[UpdateOutcome]


class CallServices(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`call_service`: services by the keys of their inputs, or by their own."""

    tenant: str
    exchange: dict[str, Any]
    hops: int = 0
    dry_run: bool = False
    """Judge the inputs and call nothing; there are no outputs then."""


class CalledServices(msgspec.Struct):
    """Answer of `call_service`: the outputs of all that were called, by name."""

    outputs: dict[str, Any]
