"""Things with their members: what an entity is an entity of.

What every device has beside its TSL: its status, its place, and its alarm.

Their numbers are the last ones of a thing, so that they are the same for every device. Searches of
entities do not list them: no number of devices by model counts them. Consoles find them in
`common_entities` of a device. A TSL that has a member of the same id hides the one here.
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
    ADDRESS,
    ALARM,
    ALARM_CONTENT,
    ALARM_STATUS,
    ALARM_TIME,
    LAST_MEMBER,
    LATITUDE,
    LOCATION,
    LONGITUDE,
    STATUS,
    SYSTEM,
    ValueType,
    device_key,
    entity_id,
    integration_key,
    member_key,
)
from libs.common.tsl import TslDocument
from services.device.members.members import Member, MemberSet, shown_value
from services.device.things.model import ListedDevice, Thing
from services.device.things.thing_store import names_of

_COORDINATE = {"unit": "°", "fraction_digits": 6, "optional": True}
_MEMBERS: list[tuple[str, str, ValueType, dict[str, Any]]] = [
    (STATUS, "Status", "STRING", {"enum": {"ONLINE": "Online", "OFFLINE": "Offline"}}),
    (LOCATION, "Location", "OBJECT", {}),
    (LATITUDE, "Latitude", "DOUBLE", {"min": -90, "max": 90, **_COORDINATE}),
    (LONGITUDE, "Longitude", "DOUBLE", {"min": -180, "max": 180, **_COORDINATE}),
    (ADDRESS, "Address", "STRING", {"min_length": 1, "max_length": 255, "optional": True}),
    (ALARM, "Alarm", "OBJECT", {}),
    (ALARM_STATUS, "Alarm status", "BOOLEAN", {}),
    (ALARM_TIME, "Alarm time", "LONG", {"unit": "ms"}),
    (ALARM_CONTENT, "Alarm content", "STRING", {}),
]
"""Path, name, type and attribute, by number from the last one down."""

COMMON = MemberSet(
    Member(
        number=LAST_MEMBER - place,
        path=path,
        type="PROPERTY",
        name=name,
        value_type=value_type,
        access_mod="R",
        attribute=attribute,
        parent=path.partition(".")[0] if "." in path else None,
    )
    for place, (path, name, value_type, attribute) in enumerate(_MEMBERS)
)

MOST_PROPERTIES, MOST_SERVICES = 10, 5
"""What widgets may show of a device first."""


@lru_cache(maxsize=1000)
def important(members: MemberSet) -> tuple[Member, ...]:
    """The members that come first in a TSL: readable values, then services.

    Each has its place, from 1, in its attribute (`important`), by which consoles order them.
    """
    first = [one for one in members.families() if one.parent is None and one.visible]
    values = (
        one
        for one in first
        if one.type == "PROPERTY" and one.value_type != "OBJECT" and one.access_mod in ("R", "RW")
    )
    services = (one for one in first if one.type == "SERVICE")
    chosen = [*islice(values, MOST_PROPERTIES), *islice(services, MOST_SERVICES)]
    return tuple(
        msgspec.structs.replace(one, attribute={**one.attribute, "important": place})
        for place, one in enumerate(chosen, 1)
    )


Document = dict[str, Any]
"""A document of `things`: see `of_thing`."""


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
    """Of a device."""
    created_at: int
    """ms."""
    updated_at: int
    members: MemberSet
    model: str = ""
    """Of a device."""
    group: int | None = None
    """Of a device: the group that it is in."""
    flow: int | None = None
    """The flow whose service it is."""
    loaded: Thing | None = None
    """As reports and commands see it, where it was looked up for them."""

    @property
    def record(self) -> Thing:
        """As reports and commands see it."""
        if self.loaded is None:
            raise RuntimeError(f"{self.key} was looked up without its record")
        return self.loaded

    @property
    def key(self) -> str:
        """The key that its entities' keys begin with."""
        if self.device:
            return device_key(self.integration, self.identifier)
        own = integration_key(self.integration)
        return f"{own}.{self.identifier}" if self.identifier else own

    def numbered(self, number: int) -> Member | None:
        """The member of a number; what every device has too."""
        common = COMMON.by_number.get(number) if self.device else None
        return self.members.by_number.get(number) or common

    def at(self, path: str) -> Member | None:
        """The member of a path; what every device has too."""
        common = COMMON.by_path.get(path) if self.device else None
        return self.members.by_path.get(path) or common

    def children(self, path: str) -> list[Member]:
        """The children of a member; what every device has too."""
        common = COMMON.children(path) if self.device else []
        return self.members.children(path) or common

    def seen_with(self, grants: Grants) -> bool:
        """Whether all of its entities are visible."""
        return grants.thing(self.id, self.integration, device=self.device, group=self.group)


@dataclass(frozen=True, slots=True)
class Entity:
    """A member of a certain thing."""

    thing: EntityThing
    member: Member

    @property
    def id(self) -> int:
        """Its id."""
        return entity_id(self.thing.id, self.member.number)

    @property
    def key(self) -> str:
        """Its key."""
        return member_key(self.thing.key, self.member.path)

    @property
    def parent_key(self) -> str | None:
        """The key of the OBJECT that it is a child of."""
        parent = self.member.parent
        return None if parent is None else member_key(self.thing.key, parent)

    @property
    def reported_path(self) -> list[str]:
        """Where its values stand among those that its thing reports.

        A custom entity reports itself under its identifier.
        """
        path = self.member.path.split(".") if self.member.path else []
        custom = not self.thing.device and self.thing.identifier
        return [self.thing.identifier, *path] if custom else path

    @property
    def customized(self) -> bool:
        """Whether people made it: it belongs to the hidden integration."""
        return not self.thing.device and self.thing.integration == SYSTEM

    @property
    def secret(self) -> bool:
        """Whether an integration keeps it, and nobody reads it here."""
        own = not self.thing.device and self.thing.integration != SYSTEM
        return own and self.member.writable and self.member.access_mod == "W"

    @property
    def write_only(self) -> bool:
        """Whether nobody can read its values: it, or the OBJECT that it is in, is write-only."""
        parent = self.member.parent
        above = None if parent is None else self.thing.at(parent)
        return self.member.write_only or (above is not None and above.write_only)

    def seen_with(self, grants: Grants) -> bool:
        """Whether it is visible, by its thing or by itself."""
        return self.thing.seen_with(grants) or grants.entity(self.id)

    def value_in(self, values: Mapping[str, Any]) -> Any:
        """Its value among the values of its thing by top-level key; None when it has none.

        One that is write-only has none.
        """
        if self.write_only:
            return None
        found: Any = values
        for name in self.reported_path:
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return None if isinstance(found, Mapping) else shown_value(self.member, found)


def of_device(device: ListedDevice, members: MemberSet, loaded: Thing | None = None) -> EntityThing:
    """The thing that a device is."""
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


def of_thing(document: Document, loaded: Thing | None = None) -> EntityThing:
    """The thing that a document of `things` is: an integration's own, or a custom entity.

    `{_id, tenant, integration, identifier ("" for an integration's own), createdAt, updatedAt,
    members: [fields of `Member`], entityNames?}`. Whoever writes it numbers the members: a custom
    entity itself is number 0 with an empty path, its children follow from 1 with parent "".
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
        members=members.renamed(names_of(document.get("entityNames", ""))),
        flow=document.get("flow"),
        loaded=loaded,
    )


def tsl_fields(document: TslDocument) -> Document:
    """What a document of `things` has of a TSL: `tsl`, its JSON, and `hash`, that of this."""
    content = msgspec.json.encode(document)
    return {"tsl": content, "hash": hashlib.sha256(content).hexdigest()}
