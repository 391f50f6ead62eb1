"""What live updates hear on the bus, and what they ask."""

import logging
from collections.abc import Sequence
from uuid import uuid4

import msgspec
from nats.aio.msg import Msg

from libs.common.bus import BatchConsumer, Bus, RpcClient
from libs.common.bus.wire import acknowledge
from libs.common.changes import SUBJECTS, read_change
from libs.common.contracts.access import ACCESS, Access, UserRef
from libs.common.contracts.entities import (
    RESOLVE,
    ResolvedEntities,
    ResolvedEntity,
    ResolveEntities,
)
from libs.common.identity import Principal
from libs.common.identity.grants import GrantReader, Grants
from services.management.live.hub import Hub

log = logging.getLogger(__name__)


def hear(bus: Bus, hub: Hub) -> BatchConsumer:
    """The consumer that tells the hub of every change from now on, each replica its own."""

    async def tell(messages: list[Msg]) -> None:
        for message in messages:
            try:
                hub.tell(read_change(message.data))
            except msgspec.DecodeError as error:
                log.warning("%s is not readable: %s", message.subject, error)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream="EVENTS",
        durable=f"live-{uuid4().hex}",
        handle=tell,
        batch=500,
        concurrency=1,
        subjects=SUBJECTS,
        fleeting=True,
    )


class EntitiesOverRpc:
    """Asks `device` about entities."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def resolve(
        self, tenant: str, keys: Sequence[str], ids: Sequence[int]
    ) -> list[ResolvedEntity]:
        """The entities that there are."""
        wanted = ResolveEntities(tenant=tenant, keys=list(keys), ids=list(ids))
        return (await self._rpc.call(RESOLVE, wanted, ResolvedEntities)).entities


class RightsOverRpc:
    """Asks `auth` what users may do and see."""

    def __init__(self, rpc: RpcClient, grants: GrantReader) -> None:
        self._rpc = rpc
        self._grants = grants

    async def refreshed(self, principal: Principal) -> tuple[Principal, Grants]:
        """What a user may do and see as of now; raise `Unauthenticated` when it is gone."""
        access = await self._rpc.call(ACCESS, UserRef(principal.tenant, principal.user_id), Access)
        known = msgspec.structs.replace(
            principal,
            functions=access.functions,
            super_admin=access.super_admin,
            access=max(access.version, principal.access),
        )
        return known, await self._grants.of(known)
