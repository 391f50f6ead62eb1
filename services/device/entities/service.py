"""Single entities on behalf of users."""

from collections.abc import Sequence

from libs.common.errors import Forbidden, NotFound
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader
from libs.common.things import SYSTEM
from services.device.devices.schemas import DeviceEntity
from services.device.entities.ports import Entities, Values
from services.device.entities.schemas import EntityMeta, EntityStatus, ShownEntity
from services.device.entities.shown import device_entity, meta_of, shown_entity
from services.device.entities.things import Entity
from services.device.things.integrations import Integrations
from services.device.things.model import ListedDevice


class EntityService:
    """Finds entities that a user sees, and says what is known of them."""

    def __init__(
        self, entities: Entities, grants: GrantReader, integrations: Integrations, values: Values
    ) -> None:
        self._entities = entities
        self._grants = grants
        self._integrations = integrations
        self._values = values

    async def find(self, principal: Principal, entity_id: int) -> Entity:
        """An entity, when the user sees it; see `find_all`."""
        (found,) = await self.find_all(principal, [entity_id])
        return found

    async def find_all(self, principal: Principal, ids: Sequence[int]) -> list[Entity]:
        """Entities that the user sees, in the order of `ids`; custom ones every user does.

        Raises `Forbidden` for a user who has no grant at all, else `NotFound`, as consoles
        expect it (notes, section 3.5).
        """
        found = await self._entities.by_ids(principal.tenant, ids)
        if all(one in found and found[one].thing.integration == SYSTEM for one in ids):
            return [found[one] for one in ids]
        grants = await self._grants.of(principal)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        for one in ids:
            if one not in found or not found[one].seen_with(grants):
                raise NotFound(f"entity {one} not found", field="entity_id")
        return [found[one] for one in ids]

    async def children(self, principal: Principal, entity_id: int) -> list[ShownEntity]:
        """The children of an entity, by number; none of one that is no OBJECT."""
        entity = await self.find(principal, entity_id)
        integrations = await self._integrations.known()
        members = entity.thing.members.children(entity.member.path)
        members.sort(key=lambda member: member.number)
        return [shown_entity(Entity(entity.thing, one), integrations) for one in members]

    async def meta(self, principal: Principal, entity_id: int) -> EntityMeta:
        """What is known of an entity besides its value."""
        return meta_of(await self.find(principal, entity_id))

    async def status(self, principal: Principal, entity_id: int) -> EntityStatus:
        """The latest value of a property; nothing for one without a value of its own."""
        entity = await self.find(principal, entity_id)
        if entity.member.type != "PROPERTY":
            return EntityStatus()
        entries = await self._values.entries(entity.thing.id)
        value = entity.value_in({key: entry["v"] for key, entry in entries.items()})
        if value is None:
            return EntityStatus()
        written = entries[entity.reported_path[0]]["t"]
        return EntityStatus(
            value=value, updated_at=str(written), value_type=entity.member.value_type
        )

    async def of_device(self, device: ListedDevice) -> Sequence[DeviceEntity]:
        """The entities of a device, each parent before its children."""
        (thing,) = await self._entities.of_devices(device.tenant, [device])
        return [device_entity(Entity(thing, member)) for member in thing.members.families()]
