"""Integrations on the bus: what they tell and ask, and what `management` asks about them."""

from collections.abc import Mapping
from typing import Any, Protocol

from libs.common.bus import RpcServer
from libs.common.contracts.entities import (
    DescribeIntegrationEntities,
    ThingEntities,
    ThingEntity,
)
from libs.common.contracts.integrations import (
    GetOwnValues,
    GetTsl,
    ListDevices,
    PutDevice,
    TellEvent,
    TellOwnReport,
    TellReply,
    TellReport,
)
from services.device.entities.things import Entity, of_thing
from services.device.integrations.known import IntegrationsOverRpc
from services.device.integrations.tells import IntegrationTells, Latest, OwnThings


class IntegrationEntities(Protocol):
    """Describes the entities of integrations."""

    async def describe(self, wanted: DescribeIntegrationEntities) -> ThingEntities:
        """The entities of the integration itself."""


class OwnEntities:
    """The entities of integrations themselves, with their values."""

    def __init__(self, integrations: IntegrationsOverRpc, own: OwnThings, latest: Latest) -> None:
        self._integrations = integrations
        self._own = own
        self._latest = latest

    async def describe(self, wanted: DescribeIntegrationEntities) -> ThingEntities:
        """Parents, each followed by its children; none of an integration that is not known."""
        found = await self._integrations.find(wanted.integration)
        if found is None:
            return ThingEntities([])
        thing = of_thing(await self._own.ensure(wanted.tenant, found.manifest))
        values = (await self._latest.of([thing.id])).get(thing.id, {})
        members = thing.members.families()
        return ThingEntities([_described(Entity(thing, member), values) for member in members])


def _described(entity: Entity, values: Mapping[str, Any]) -> ThingEntity:
    member = entity.member
    value = entity.value_in(values) if member.type == "PROPERTY" else None
    if value is not None and "enum" in member.attribute:
        value = str(value)  # consoles look it up among the keys of the enumeration
    return ThingEntity(
        id=entity.id,
        key=entity.key,
        parent=entity.parent_key,
        name=member.name,
        description=member.description,
        type=member.type,
        value_type=member.value_type,
        access_mod=member.access_mod,
        value_attribute=member.attribute,
        value=value,
    )


def offer_tells(rpc: RpcServer, tells: IntegrationTells, entities: IntegrationEntities) -> None:
    """Answer `rpc.device.{operation}.{integration}` and `rpc.device.integration_entities`."""
    rpc.offer_each("report", TellReport, tells.report)
    rpc.offer_each("event", TellEvent, tells.event)
    rpc.offer_each("reply", TellReply, tells.reply)
    rpc.offer_each("own_report", TellOwnReport, tells.own_report)
    rpc.offer_each("list_devices", ListDevices, tells.list_devices)
    rpc.offer_each("get_tsl", GetTsl, tells.get_tsl)
    rpc.offer_each("own_values", GetOwnValues, tells.own_values)
    rpc.offer_each("put_device", PutDevice, tells.put_device)
    rpc.offer("integration_entities", DescribeIntegrationEntities, entities.describe)
