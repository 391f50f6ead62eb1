"""Grants resources to roles and takes them back."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.contracts.access import ForgetResources, ShareWithRoles
from libs.common.contracts.auth import Done
from libs.common.errors import Conflict, InvalidInput
from libs.common.identity import Caller, Kind, Principal
from libs.common.store.mongo import Session
from services.auth.accounts import Accounts
from services.auth.accounts.grants import Resource
from services.auth.audit import Subject
from services.auth.changes import Change, Changes, operator
from services.auth.grants.owners import ResourceOwners
from services.auth.grants.schemas import ResourceSearch, resources_of, shown_ids
from services.auth.roles.service import RoleService, listed

MAX_GRANTS = 20_000
"""Most resources of one role. A user's grants have to fit into one message of the bus; a role
that shows more is granted the integration, or a group."""


@dataclass(frozen=True)
class GrantService:
    """The grants of the roles of a tenant."""

    changes: Changes
    roles: RoleService
    accounts: Accounts
    owners: ResourceOwners

    async def search(
        self, caller: Caller, role_id: int, wanted: ResourceSearch
    ) -> tuple[list[Resource], int]:
        """The page of a role's resources, and how many match; raise `NotFound`."""
        await self.roles.get(caller, role_id)
        tenant, kind = caller.tenant, wanted.resource_type
        return await self.accounts.grants.search(tenant, role_id, kind, wanted)

    async def add(self, caller: Caller, role_id: int, resources: Sequence[Resource]) -> None:
        """Grant resources; raise `NotFound`, or `Conflict` when they are too many.

        Raises `InvalidInput` for a resource that there is not. What nobody is there to tell of is
        granted; the sweep removes it when there turns out to be none.
        """
        await self.roles.get(caller, role_id)
        if len(resources) > MAX_GRANTS:
            raise _too_many()
        missing = await self.owners.missing(caller.tenant, resources)
        if missing:
            raise InvalidInput(f"there is no {shown_ids(missing)[0]}", field="resources")

        async def insert_grants(change: Change) -> None:
            role = await self.roles.get(caller, role_id, change.session)
            added = await self.accounts.grants.add(
                caller.tenant, role_id, resources, change.session
            )
            if not added:
                return
            await self._bound(caller.tenant, role_id, change.session)
            told = {"resources": listed(shown_ids(added))}
            change.record_access("resources_added", role.subject, after=told)

        await self.changes.run(caller, insert_grants)

    async def remove(self, caller: Caller, role_id: int, resources: Sequence[Resource]) -> None:
        """Take resources back; those that the role has not are passed over; raise `NotFound`."""

        async def delete_grants(change: Change) -> None:
            role = await self.roles.get(caller, role_id, change.session)
            removed = await self.accounts.grants.remove(
                caller.tenant, role_id, resources, change.session
            )
            if removed:
                told = {"resources": listed(shown_ids(removed))}
                change.record_access("resources_removed", role.subject, before=told)

        await self.changes.run(caller, delete_grants)

    async def share(self, wanted: ShareWithRoles) -> Done:
        """Grant what a user made to all of its roles; nothing happens without any.

        Raises `Conflict` when one of them has as many as it may: whoever may make things could
        otherwise make the grants of others too many to be answered.
        """
        resources = resources_of(wanted.resources)
        user = Principal(kind=Kind.USER, tenant=wanted.tenant, subject=str(wanted.user_id))

        async def insert_grants(change: Change) -> None:
            tenant, session = wanted.tenant, change.session
            for role_id in (
                await self.accounts.users.roles_of(tenant, wanted.user_id, session) or ()
            ):
                added = await self.accounts.grants.add(tenant, role_id, resources, session)
                await self._bound(tenant, role_id, session)
                _record(change, "resources_added", role_id, after=added)

        await self.changes.run(Caller(user), insert_grants)
        return Done()

    async def forget(self, wanted: ForgetResources) -> Done:
        """Remove the grants of resources that are gone."""
        await self.forget_all(wanted.tenant, resources_of(wanted.resources))
        return Done()

    async def forget_all(self, tenant: str, resources: Sequence[Resource]) -> None:
        """Remove the grants of resources from every role; mostly there are none.

        A device takes the grants of its entities along.
        """
        if not await self.accounts.grants.granted(tenant, resources):
            return

        async def delete_grants(change: Change) -> None:
            forgotten = await self.accounts.grants.forget(tenant, resources, change.session)
            for role_id, removed in forgotten.items():
                _record(change, "resources_removed", role_id, before=removed)

        await self.changes.run(operator(tenant), delete_grants)

    async def _bound(self, tenant: str, role_id: int, session: Session) -> None:
        """Raise `Conflict` when a role has more resources than it may."""
        if await self.accounts.grants.count(tenant, role_id, session) > MAX_GRANTS:
            raise _too_many()


def offer_grants(rpc: RpcServer, grants: GrantService) -> None:
    """Offer the changes that owners of resources make as `rpc.auth.…`."""
    rpc.offer("share_with_roles", ShareWithRoles, grants.share)
    rpc.offer("forget_resources", ForgetResources, grants.forget)


def _too_many() -> Conflict:
    return Conflict(
        f"a role has at most {MAX_GRANTS} resources; grant it their integration or their group",
        field="resources",
    )


def _record(
    change: Change,
    action: str,
    role_id: int,
    before: Sequence[Resource] = (),
    after: Sequence[Resource] = (),
) -> None:
    if not before and not after:
        return
    change.record_access(
        action,
        Subject("role", str(role_id)),
        before={"resources": listed(shown_ids(before))} if before else None,
        after={"resources": listed(shown_ids(after))} if after else None,
    )
