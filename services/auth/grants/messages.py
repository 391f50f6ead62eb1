"""What is asked about grants, and which events end some."""

from collections import defaultdict

from nats.aio.msg import Msg

from libs.common.bus import EVENTS, BatchConsumer, Bus, RpcServer, acknowledge
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
        deleted: dict[str, list[Resource]] = defaultdict(list)
        for message in messages:
            _, tenant, _, device_id, _ = message.subject.split(".")
            deleted[tenant].append(Resource(ResourceType.DEVICE, int(device_id)))
        for tenant, devices in deleted.items():
            await grants.forget_all(tenant, devices)
        await acknowledge(bus.client, messages)

    return BatchConsumer(
        bus=bus,
        stream=EVENTS,
        durable=DURABLE,
        subject=DELETED,
        handle=handle,
        batch=BATCH,
        concurrency=1,
    )
