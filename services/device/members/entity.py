"""Things with their members, and the entities of things.

Every device has some members besides those of its TSL: status, location and alarm. Their numbers
are the last ones of a thing and the same for every device. Searches of entities do not list them,
so counts of devices by model stay valid; consoles find them in `common_entities` of a device. A
member of the TSL with the same id takes precedence.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.identity.grants import Grants
from libs.common.things import (
    ADDRESS_PATH,
    ALARM_CONTENT_PATH,
    ALARM_PATH,
    ALARM_STATUS_PATH,
    ALARM_TIME_PATH,
    LATITUDE_PATH,
    LOCATION_PATH,
    LONGITUDE_PATH,
    MAX_MEMBER_NUMBER,
    STATUS_PATH,
    SYSTEM_INTEGRATION,
    ValueType,
    device_key,
    entity_id,
    integration_key,
    member_key,
)
from libs.common.tsl import TslDocument
from services.device.members.members import Member, MemberSet, convert_stored_value
from services.device.things.model import ListedDevice, Thing
from services.device.things.thing_store import parse_names

_COORDINATE = {"unit": "°", "fraction_digits": 6, "optional": True}
_COMMON_MEMBER_SPECS: list[tuple[str, str, ValueType, dict[str, Any]]] = [
    (STATUS_PATH, "Status", "STRING", {"enum": {"ONLINE": "Online", "OFFLINE": "Offline"}}),
    (LOCATION_PATH, "Location", "OBJECT", {}),
    (LATITUDE_PATH, "Latitude", "DOUBLE", {"min": -90, "max": 90, **_COORDINATE}),
    (LONGITUDE_PATH, "Longitude", "DOUBLE", {"min": -180, "max": 180, **_COORDINATE}),
    (ADDRESS_PATH, "Address", "STRING", {"min_length": 1, "max_length": 255, "optional": True}),
    (ALARM_PATH, "Alarm", "OBJECT", {}),
    (ALARM_STATUS_PATH, "Alarm status", "BOOLEAN", {}),
    (ALARM_TIME_PATH, "Alarm time", "LONG", {"unit": "ms"}),
    (ALARM_CONTENT_PATH, "Alarm content", "STRING", {}),
]
"""Path, name, type and attribute. Member numbers descend from `MAX_MEMBER_NUMBER`."""

COMMON_MEMBERS = MemberSet(
    Member(
        number=MAX_MEMBER_NUMBER - index,
        path=path,
        type="PROPERTY",
        name=name,
        value_type=value_type,
        access_mod="R",
        attribute=attribute,
        parent=path.partition(".")[0] if "." in path else None,
    )
    for index, (path, name, value_type, attribute) in enumerate(_COMMON_MEMBER_SPECS)
)

MAX_PROPERTIES, MAX_SERVICES = 10, 5
"""Members of a device that widgets show by default."""


@lru_cache(maxsize=1000)
def select_important_members(members: MemberSet) -> tuple[Member, ...]:
    """Return the first readable values of a TSL, then its first services.

    Their attribute `important` holds the position, from 1, by which consoles sort them.
    """
    top = [
        member
        for member in members.list_in_tree_order()
        if member.parent is None and member.visible
    ]
    values = (
        member
        for member in top
        if member.type == "PROPERTY"
        and member.value_type != "OBJECT"
        and member.access_mod in ("R", "RW")
    )
    services = (member for member in top if member.type == "SERVICE")
    chosen = [*islice(values, MAX_PROPERTIES), *islice(services, MAX_SERVICES)]
    return tuple(
        msgspec.structs.replace(member, attribute={**member.attribute, "important": position})
        for position, member in enumerate(chosen, 1)
    )


ThingDocument = dict[str, Any]
"""A document of `things`: see `thing_from_document`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityThing:
    """A device, an integration or a custom entity."""

    id: int
    tenant: str
    integration: str
    identifier: str
    """SN of a device, identifier of a custom entity, empty for an integration."""
    device: bool
    name: str | None
    """Name of a device, otherwise None."""
    created_at: int
    """Time in ms."""
    updated_at: int
    members: MemberSet
    model: str = ""
    """Product of a device."""
    group: int | None = None
    """Id of the group of a device."""
    flow: int | None = None
    """Id of the flow that offers the custom entity as a service."""
    loaded: Thing | None = None
    """The thing with its TSL, which reports and commands need, if it was loaded."""

    @property
    def loaded_thing(self) -> Thing:
        """Return `loaded`, the thing with its TSL; raise `RuntimeError` if it is None."""
        if self.loaded is None:
            raise RuntimeError(f"the thing {self.key} was loaded without its record")
        return self.loaded

    @property
    def key(self) -> str:
        """Return the key of the thing, the prefix of the keys of its entities."""
        if self.device:
            return device_key(self.integration, self.identifier)
        key = integration_key(self.integration)
        return f"{key}.{self.identifier}" if self.identifier else key

    def find_member(self, number: int) -> Member | None:
        """Return the member with a number, including common members of devices."""
        common = COMMON_MEMBERS.by_number.get(number) if self.device else None
        return self.members.by_number.get(number) or common

    def find_member_at(self, path: str) -> Member | None:
        """Return the member with a path, including common members of devices."""
        common = COMMON_MEMBERS.by_path.get(path) if self.device else None
        return self.members.by_path.get(path) or common

    def children(self, path: str) -> list[Member]:
        """Return the children of a member, including those of common members."""
        common = COMMON_MEMBERS.children(path) if self.device else []
        return self.members.children(path) or common

    def is_visible_to(self, grants: Grants) -> bool:
        """Return whether the grants include all entities of the thing."""
        return grants.allows_thing(self.id, self.integration, device=self.device, group=self.group)


@dataclass(frozen=True, slots=True)
class Entity:
    """A member of a certain thing."""

    thing: EntityThing
    member: Member

    @property
    def id(self) -> int:
        """Return the entity id."""
        return entity_id(self.thing.id, self.member.number)

    @property
    def key(self) -> str:
        """Return the entity key."""
        return member_key(self.thing.key, self.member.path)

    @property
    def parent_key(self) -> str | None:
        """Return the key of the OBJECT that contains the entity, if any."""
        parent = self.member.parent
        return None if parent is None else member_key(self.thing.key, parent)

    @property
    def reported_path(self) -> list[str]:
        """Return the path of the entity's value in the reports of its thing.

        A custom entity reports its value under its identifier.
        """
        path = self.member.path.split(".") if self.member.path else []
        has_identifier = not self.thing.device and self.thing.identifier
        return [self.thing.identifier, *path] if has_identifier else path

    @property
    def is_custom(self) -> bool:
        """Return whether the entity is a custom entity of users, or a child of one."""
        return not self.thing.device and self.thing.integration == SYSTEM_INTEGRATION

    @property
    def is_integration_secret(self) -> bool:
        """Return whether only the integration of the entity may read it."""
        of_integration = not self.thing.device and self.thing.integration != SYSTEM_INTEGRATION
        return of_integration and self.member.writable and self.member.access_mod == "W"

    @property
    def write_only(self) -> bool:
        """Return whether the entity, or the OBJECT that contains it, is write-only."""
        parent = self.member.parent
        container = None if parent is None else self.thing.find_member_at(parent)
        return self.member.write_only or (container is not None and container.write_only)

    def is_visible_to(self, grants: Grants) -> bool:
        """Return whether the grants include the entity or its thing."""
        return self.thing.is_visible_to(grants) or grants.allows_entity_id(self.id)

    def value_in(self, values: Mapping[str, Any]) -> Any:
        """Return the entity's value among values of its thing.

        Return None if the value is missing, write-only or a STRUCT.
        """
        if self.write_only:
            return None
        value: Any = values
        for name in self.reported_path:
            if not isinstance(value, Mapping) or name not in value:
                return None
            value = value[name]
        return None if isinstance(value, Mapping) else convert_stored_value(self.member, value)


def thing_from_device(
    device: ListedDevice, members: MemberSet, loaded: Thing | None = None
) -> EntityThing:
    """Return a device as a thing with members; `loaded` is its thing with the TSL."""
    return EntityThing(
        id=device.id,
        tenant=device.tenant,
        integration=device.integration,
        identifier=device.sn,
        device=True,
        name=device.name,
        created_at=to_ms(device.created_at),
        updated_at=to_ms(device.updated_at),
        members=members,
        model=device.model,
        group=device.group,
        loaded=loaded,
    )


def thing_from_document(document: ThingDocument, loaded: Thing | None = None) -> EntityThing:
    """Return the integration or custom entity that a document of `things` describes.

    The document is `{_id, tenant, integration, identifier ("" for an integration), createdAt,
    updatedAt, members: [fields of `Member`], entityNames?, flow?}`. The writer numbers the members:
    a custom entity is number 0 with an empty path, its children follow from 1 with parent "".
    """
    members = MemberSet(msgspec.convert(document["members"], list[Member]))
    return EntityThing(
        id=document["_id"],
        tenant=document["tenant"],
        integration=document["integration"],
        identifier=document["identifier"],
        device=False,
        name=None,
        created_at=to_ms(document["createdAt"]),
        updated_at=to_ms(document["updatedAt"]),
        members=members.rename(parse_names(document.get("entityNames", ""))),
        flow=document.get("flow"),
        loaded=loaded,
    )


def stored_tsl_fields(document: TslDocument) -> dict[str, Any]:
    """Return the fields `tsl` (JSON) and `hash` for a document of `things`."""
    content = msgspec.json.encode(document)
    return {"tsl": content, "hash": hashlib.sha256(content).hexdigest()}
