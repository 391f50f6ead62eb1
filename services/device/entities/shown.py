"""How answers show entities."""

from collections.abc import Mapping

from libs.common.contracts.entities import ResolvedEntity
from services.device.devices.schemas import DeviceEntity
from services.device.entities.schemas import EntityMeta, ShownEntity
from services.device.entities.things import Entity
from services.device.things.integrations import Integration


def shown_entity(entity: Entity, integrations: Mapping[str, Integration]) -> ShownEntity:
    """A row of a list."""
    thing, member = entity.thing, entity.member
    integration = integrations.get(thing.integration)
    above = None if member.parent is None else thing.members.by_path.get(member.parent)
    return ShownEntity(
        entity_id=str(entity.id),
        entity_key=entity.key,
        entity_name=member.name,
        entity_type=member.type,
        entity_value_type=member.value_type,
        entity_value_attribute=member.attribute,
        entity_access_mod=member.access_mod,
        entity_parent_name=above.name if above else None,
        entity_description=member.description,
        entity_is_customized=entity.customized,
        entity_created_at=thing.created_at,
        entity_updated_at=thing.updated_at,
        device_name=thing.name,
        integration_name=integration.name if integration else None,
    )


def meta_of(entity: Entity) -> EntityMeta:
    """What is known of an entity besides its value."""
    thing, member = entity.thing, entity.member
    return EntityMeta(
        id=str(entity.id),
        key=entity.key,
        name=member.name,
        type=member.type,
        access_mod=member.access_mod,
        value_type=member.value_type,
        value_attribute=member.attribute,
        description=member.description,
        customized=entity.customized,
        created_at=thing.created_at,
        updated_at=thing.updated_at,
    )


def device_entity(entity: Entity) -> DeviceEntity:
    """An entity in the detail of its device."""
    member = entity.member
    return DeviceEntity(
        id=str(entity.id),
        key=entity.key,
        name=member.name,
        type=member.type,
        value_attribute=member.attribute,
        value_type=member.value_type,
        description=member.description,
    )


def resolved(entity: Entity) -> ResolvedEntity:
    """An entity as other services get it."""
    thing, member = entity.thing, entity.member
    return ResolvedEntity(
        id=entity.id,
        key=entity.key,
        thing_id=thing.id,
        integration=thing.integration,
        device=thing.device,
        member=member.path,
        parent=entity.parent_key,
        name=member.name,
        type=member.type,
        value_type=member.value_type,
        access_mod=member.access_mod,
        writable=member.writable,
        value_attribute=member.attribute,
        device_name=thing.name,
    )
