"""Grants resources to roles and revokes them."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.bus import RpcServer
from libs.common.contracts.access import ForgetResources, ShareWithRoles
from libs.common.contracts.auth import Done
from libs.common.errors import Conflict, InvalidInput
from libs.common.identity import Caller, Principal, PrincipalKind
from libs.common.store.mongo import Session
from services.auth.accounts import Accounts
from services.auth.accounts.grants import Resource
from services.auth.audit import AuditTarget
from services.auth.changes import ChangeRunner, ChangeTransaction, build_operator_caller
from services.auth.grants.listings import ResourceOwnerClient
from services.auth.grants.schemas import ResourceSearch, format_resources, parse_resources
from services.auth.roles.service import RoleService, summarize_ids

MAX_GRANTS_PER_ROLE = 20_000
"""Maximum resources of a role, because a user's grants must fit into one NATS message. A role
that needs more is granted the integration or a group."""


@dataclass(frozen=True)
class GrantService:
    """The grants of the roles of a tenant."""

    changes: ChangeRunner
    roles: RoleService
    accounts: Accounts
    owners: ResourceOwnerClient

    async def search(
        self, caller: Caller, role_id: int, request: ResourceSearch
    ) -> tuple[list[Resource], int]:
        """Return one page of a role's resources and the total; raise `NotFound`."""
        await self.roles.get(caller, role_id)
        tenant, kind = caller.tenant, request.resource_type
        return await self.accounts.grants.search(tenant, role_id, kind, request)

    async def add(self, caller: Caller, role_id: int, resources: Sequence[Resource]) -> None:
        """Grant resources; raise `NotFound`, or `Conflict` beyond `MAX_GRANTS_PER_ROLE`.

        Raises `InvalidInput` for a resource that does not exist. A resource whose service does not
        run is granted; the sweep deletes the grant if the resource turns out to be missing.
        """
        await self.roles.get(caller, role_id)
        if len(resources) > MAX_GRANTS_PER_ROLE:
            raise _too_many_grants_error()
        missing = await self.owners.find_missing(caller.tenant, resources)
        if missing:
            raise InvalidInput(f"{format_resources(missing)[0]} does not exist", field="resources")

        async def insert_grants(change: ChangeTransaction) -> None:
            role = await self.roles.get(caller, role_id, change.session)
            added = await self.accounts.grants.add(
                caller.tenant, role_id, resources, change.session
            )
            if not added:
                return
            await self._require_below_maximum(caller.tenant, role_id, change.session)
            _record_grants(change, "resources_added", role.audit_target, after=added)

        await self.changes.run(caller, insert_grants)

    async def remove(self, caller: Caller, role_id: int, resources: Sequence[Resource]) -> None:
        """Revoke resources of a role, ignoring resources that the role is not granted.

        Raises `NotFound` if the role does not exist.
        """

        async def delete_grants(change: ChangeTransaction) -> None:
            role = await self.roles.get(caller, role_id, change.session)
            removed = await self.accounts.grants.remove(
                caller.tenant, role_id, resources, change.session
            )
            _record_grants(change, "resources_removed", role.audit_target, before=removed)

        await self.changes.run(caller, delete_grants)

    async def share_with_creator_roles(self, request: ShareWithRoles) -> Done:
        """Grant resources to all roles of the user who created them.

        Raises `Conflict` if a role exceeds `MAX_GRANTS_PER_ROLE`. Otherwise users who create
        resources could exceed the size limit of other users' grants.
        """
        resources = parse_resources(request.resources)
        found = await self.accounts.users.find_summaries(request.tenant, [request.user_id])
        user = Principal(
            kind=PrincipalKind.USER,
            tenant=request.tenant,
            subject=str(request.user_id),
            name=found[request.user_id].email if found else "",
        )

        async def insert_grants(change: ChangeTransaction) -> None:
            tenant, session = request.tenant, change.session
            for role_id in (
                await self.accounts.users.list_role_ids(tenant, request.user_id, session) or ()
            ):
                added = await self.accounts.grants.add(tenant, role_id, resources, session)
                await self._require_below_maximum(tenant, role_id, session)
                target = await self._role_audit_target(tenant, role_id, session)
                _record_grants(change, "resources_added", target, after=added)

        await self.changes.run(Caller(user), insert_grants)
        return Done()

    async def remove_deleted_resources(self, request: ForgetResources) -> Done:
        """Delete all grants of resources that their service has deleted."""
        await self.remove_from_all_roles(request.tenant, parse_resources(request.resources))
        return Done()

    async def remove_from_all_roles(self, tenant: str, resources: Sequence[Resource]) -> None:
        """Delete the grants of resources from all roles, including a device's entities.

        Checks first without a transaction, because usually no grant exists.
        """
        if not await self.accounts.grants.has_grants(tenant, resources):
            return

        async def delete_grants(change: ChangeTransaction) -> None:
            forgotten = await self.accounts.grants.remove_from_all_roles(
                tenant, resources, change.session
            )
            for role_id, removed in forgotten.items():
                target = await self._role_audit_target(tenant, role_id, change.session)
                _record_grants(change, "resources_removed", target, before=removed)

        await self.changes.run(build_operator_caller(tenant), delete_grants)

    async def _role_audit_target(self, tenant: str, role_id: int, session: Session) -> AuditTarget:
        role = await self.accounts.roles.get(tenant, role_id, session)
        return role.audit_target if role else AuditTarget("role", str(role_id))

    async def _require_below_maximum(self, tenant: str, role_id: int, session: Session) -> None:
        if await self.accounts.grants.count(tenant, role_id, session) > MAX_GRANTS_PER_ROLE:
            raise _too_many_grants_error()


def offer_grants(rpc: RpcServer, grants: GrantService) -> None:
    """Offer changes of grants by the owners of resources as `rpc.auth.…`."""
    rpc.offer("share_with_roles", ShareWithRoles, grants.share_with_creator_roles)
    rpc.offer("forget_resources", ForgetResources, grants.remove_deleted_resources)


def _too_many_grants_error() -> Conflict:
    return Conflict(
        f"a role can have at most {MAX_GRANTS_PER_ROLE} resources; grant an integration or group "
        "instead",
        field="resources",
    )


def _record_grants(
    change: ChangeTransaction,
    action: str,
    role: AuditTarget,
    before: Sequence[Resource] = (),
    after: Sequence[Resource] = (),
) -> None:
    if not before and not after:
        return
    change.record_access_change(
        action,
        role,
        before={"resources": summarize_ids(format_resources(before))} if before else None,
        after={"resources": summarize_ids(format_resources(after))} if after else None,
    )
