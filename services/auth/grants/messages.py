"""What is asked about grants, and which events end some."""

from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, RpcServer, acknowledge, event_tenant
from libs.common.contracts.access import (
    ForgetResources,
    ResourceType,
    ShareWithRoles,
    UserRef,
)
from services.auth.accounts.grants import Resource
from services.auth.grants.access import AccessService
from services.auth.grants.service import GrantService

DURABLE = "auth"
DELETED = "event.*.device.*.deleted"
BATCH = 200
TENANTS = 4
"""Tenants whose events are handled at the same time."""


def offer_access(rpc: RpcServer, access: AccessService) -> None:
    """Offer what users may do and see as `rpc.auth.…`."""
    rpc.offer("get_access", UserRef, access.access)
    rpc.offer("get_grants", UserRef, access.grants)


def offer_grants(rpc: RpcServer, grants: GrantService) -> None:
    """Offer the changes that owners of resources make as `rpc.auth.…`."""
    rpc.offer("share_with_roles", ShareWithRoles, grants.share)
    rpc.offer("forget_resources", ForgetResources, grants.forget)


def consumer_of_deletions(bus: Bus, grants: GrantService) -> BatchConsumer:
    """Forgets the grants of devices when events tell that they were deleted."""

    async def handle(messages: list[Msg]) -> None:
        names = [message.subject.split(".")[3] for message in messages]
        devices = [Resource(ResourceType.DEVICE, int(name)) for name in names]
        await grants.forget_all(event_tenant(messages[0]), devices)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        subject=DELETED,
        handle=handle,
        lane=event_tenant,
        batch=BATCH,
        concurrency=TENANTS,
    )
