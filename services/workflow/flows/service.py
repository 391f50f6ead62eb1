"""Saves, returns, enables and deletes flows on behalf of users."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.contracts.limits import Limits
from libs.common.contracts.names import DescribedFlows, DescribeFlows
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound
from libs.common.http.console import Page, distinct_ids, parse_name
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import ResourceTypeGrants
from libs.common.identity.users import UserNames
from libs.common.limits.quota import limit_error
from libs.common.limits.tenants import count_rejection
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from services.workflow.flows.deployment import FlowDeployer
from services.workflow.flows.model import (
    DesignResponse,
    Flow,
    FlowResponse,
    FlowVersion,
    SavedDesign,
    SaveDesign,
    SearchFlows,
    TransactionStep,
    UpdateFlow,
)
from services.workflow.flows.store import FlowStore, UnsettledStore
from services.workflow.graph.design import add_editor_fields, prepare_to_store
from services.workflow.runs.store import RunStore
from services.workflow.vault import ConcealedDesign, SecretStore, Vault, find_marks

MAX_CHANGE_ATTEMPTS = 20
"""Attempts to change a flow while others change it."""
MAX_OLD_VERSIONS = 50
"""Older versions of a flow that a deletion keeps: users need few, and each may have 1 MiB."""
VERSIONS_BETWEEN_TRIMS = 10
"""Versions between two deletions of old ones, because a deletion reads all that it keeps."""

FlowChange = tuple[Flow, ConcealedDesign | None]
"""The changed flow, and its design with marks instead of secrets; None if only fields change."""


@dataclass(frozen=True, kw_only=True)
class FlowService:
    """The operations on flows."""

    store: FlowStore
    unsettled: UnsettledStore
    secrets: SecretStore
    runs: RunStore
    vault: Vault
    deployer: FlowDeployer
    sharing: ResourceTypeGrants
    user_names: UserNames
    limits: Callable[[str], Limits]
    ids: IdAllocator

    async def search(
        self, user: Principal, request: SearchFlows
    ) -> list[FlowResponse] | Page[FlowResponse]:
        """Return one page of the flows visible to the user, by default newest first."""
        grants = await self.sharing.read_grants(user)
        visible = None if grants.everything else sorted(grants.resources.workflows)
        flows, total = await self.store.search(user.tenant, visible, request)
        authors = sorted({flow.user_id for flow in flows if flow.user_id is not None})
        names = await self.user_names.nicknames(user.tenant, authors)
        return request.listed([_list_response(flow, names) for flow in flows], total)

    async def set_name_and_remark(self, user: Principal, flow_id: int, request: UpdateFlow) -> None:
        """Set name and remark; the design and its version do not change."""
        info = {"name": parse_name(request.name), "remark": request.remark}
        await self._change_with_retries(
            user, flow_id, lambda before: (_with_changes(before, **info), None)
        )

    async def set_enabled(self, user: Principal, flow_id: int, *, enabled: bool) -> None:
        """Enable or disable a flow, unless it is in that state already."""

        def set_state(before: Flow) -> FlowChange:
            unchanged = before.enabled == enabled
            return (before if unchanged else _with_changes(before, enabled=enabled)), None

        await self._change_with_retries(user, flow_id, set_state)

    async def delete(self, user: Principal, ids: Sequence[int]) -> None:
        """Delete flows with designs, logs and grants, ignoring unknown ids.

        Raises `Forbidden` for a user without any grants.
        """
        grants = await self.sharing.read_grants(user)
        if grants.is_empty:
            raise Forbidden("this user has no grants; ask a super-admin for access")
        granted_ids = [flow_id for flow_id in distinct_ids(ids) if grants.allows_workflow(flow_id)]
        existing_ids = await self.store.list_existing(user.tenant, granted_ids)
        if not existing_ids:
            return

        async def undeploy(session: Session) -> None:
            for flow_id in existing_ids:
                await self.deployer.undeploy(user.tenant, flow_id, session)
            await self.secrets.remove_flows(user.tenant, existing_ids, session)
            await self.unsettled.mark(user.tenant, existing_ids, session)

        await self.store.remove(user.tenant, existing_ids, undeploy)
        for flow_id in existing_ids:
            await self.deployer.notify_deleted(user.tenant, flow_id)
        await self.runs.remove(user.tenant, existing_ids)
        await self.sharing.forget(user.tenant, existing_ids)

    async def get_design(
        self, user: Principal, flow_id: int, version: int | None
    ) -> DesignResponse:
        """Return a version of a flow's design, by default the latest."""
        flow = await self.get_visible(user, flow_id)
        text: str | None = flow.design
        if version is not None and version > flow.version:
            raise InvalidInput(
                f"must be at most {flow.version}, the latest version", field="version"
            )
        if version is not None and version != flow.version:
            text = await self.store.get_design(user.tenant, flow_id, version)
        if text is None:
            raise NotFound(f"version {version} is not stored any more", field="version")
        return DesignResponse.from_fields(flow, design_data=add_editor_fields(text))

    async def list_versions(self, user: Principal, flow_id: int) -> list[FlowVersion]:
        """Return the stored versions of a flow's design, newest first."""
        flow = await self.get_visible(user, flow_id)
        replaced = await self.store.list_old_versions(user.tenant, flow_id)
        began = {1: to_ms(flow.created_at)} | {number + 1: at for number, at in replaced.items()}
        return [
            FlowVersion(version=number, saved_at=began.get(number))
            for number in (flow.version, *replaced)
        ]

    async def save(self, user: Principal, request: SaveDesign) -> SavedDesign:
        """Save a new flow, or a new version of the flow with an id and version.

        The secrets of the design are stored in the vault. Raises `Conflict` if `version` is not the
        latest version, and `InvalidInput` with the reasons if an enabled flow cannot run.
        """
        name = parse_name(request.name)
        if bool(request.id) != (request.version is not None):
            missing, present = ("version", "id") if request.id else ("id", "version")
            raise InvalidInput(
                f"is required with {present}; omit both for a new flow", field=missing
            )
        concealed = self.vault.replace_secrets_by_marks(
            user.tenant, prepare_to_store(request.design_data)
        )
        flow = await (
            self._save_version(user, request, name, concealed)
            if request.id
            else self._create(user, request, name, concealed)
        )
        return SavedDesign(str(flow.id), str(flow.id), flow.version)

    async def get_visible(self, user: Principal, flow_id: int) -> Flow:
        """Return a flow that is visible to the user.

        Raises `Forbidden` for a user without any grants, and `NotFound` for a flow that does not
        exist or is not visible.
        """
        grants = await self.sharing.read_grants(user)
        if grants.is_empty:
            raise Forbidden("this user has no grants; ask a super-admin for access")
        flow = (
            await self.store.get(user.tenant, flow_id) if grants.allows_workflow(flow_id) else None
        )
        if flow is None:
            raise NotFound(f"flow {flow_id} does not exist", field="id")
        return flow

    async def describe(self, request: DescribeFlows) -> DescribedFlows:
        """Return which of the requested flows exist, for other services."""
        return DescribedFlows(await self.store.list_existing(request.tenant, request.ids))

    async def disable_failing(self, tenant: str, flow_id: int, version: int, reason: str) -> bool:
        """Disable a failing flow for the engine; users see the `reason`.

        Returns False if the flow does not run this version any more.
        """
        flow = await self.store.get(tenant, flow_id)
        if flow is None or not flow.enabled or flow.version != version:
            return False

        async def undeploy(session: Session) -> None:
            await self.deployer.undeploy(tenant, flow_id, session)

        disabled = _with_changes(flow, enabled=False, stopped=reason)
        if not await self.store.replace(flow, disabled, undeploy):
            return False
        await self.deployer.notify_stored(tenant, flow_id)
        return True

    async def _create(
        self, user: Principal, request: SaveDesign, name: str, concealed: ConcealedDesign
    ) -> Flow:
        """Add a flow. Grants are stored first, as grants of a missing flow are harmless."""
        if not user.may(Function.WORKFLOW_ADD):
            raise Forbidden("this user may not create or edit flows")
        maximum = self.limits(user.tenant).flows
        if await self.store.count(user.tenant) >= maximum:
            count_rejection("flows", user.tenant)
            raise limit_error("flows", maximum)
        now = datetime.now(UTC)
        flow = Flow(
            id=await self.ids.allocate(),
            tenant=user.tenant,
            name=name,
            remark=request.remark or "",
            enabled=bool(request.enabled),
            version=1,
            design=concealed.text,
            user_id=user.user_id,
            created_at=now,
            updated_at=now,
        )
        store_related = await self._prepare_write(user, flow, None, concealed)
        try:
            await self.sharing.share(user, flow.id)
            await self.store.insert(flow, store_related)
        except Exception:
            await self.sharing.forget(user.tenant, [flow.id])
            await self.deployer.notify_deleted(user.tenant, flow.id)
            raise
        await self.deployer.notify_stored(user.tenant, flow.id)
        return flow

    async def _save_version(
        self, user: Principal, request: SaveDesign, name: str, concealed: ConcealedDesign
    ) -> Flow:
        if not user.may(Function.WORKFLOW_EDIT):
            raise Forbidden("this user may not create or edit flows")

        def apply(before: Flow) -> FlowChange:
            if request.version != before.version:
                text = f"version {request.version} is outdated; the latest is {before.version}"
                raise Conflict(text, field="version", code=InvalidInput.code)
            keeps_design = request.design_data is None
            concealed_design = (
                self.vault.replace_secrets_by_marks(user.tenant, before.design)
                if keeps_design
                else concealed
            )
            after = _with_changes(
                before,
                name=name,
                remark=before.remark if request.remark is None else request.remark,
                enabled=before.enabled if request.enabled is None else request.enabled,
                design=concealed_design.text,
                version=before.version + (concealed_design.text != before.design),
            )
            return after, concealed_design

        return await self._change_with_retries(user, request.id or 0, apply)

    async def _change_with_retries(
        self, user: Principal, flow_id: int, change: Callable[[Flow], FlowChange]
    ) -> Flow:
        """Change the current state of a flow; retry after concurrent changes."""
        for _ in range(MAX_CHANGE_ATTEMPTS):
            before = await self.get_visible(user, flow_id)
            after, concealed = change(before)
            if after is before:
                return before
            store_related = await self._prepare_write(user, after, before, concealed)
            if await self.store.replace(before, after, store_related):
                await self.deployer.notify_stored(user.tenant, after.id)
                return after
        raise Conflict(f"other users are changing flow {flow_id}; try again", field="id")

    async def _prepare_write(
        self, user: Principal, flow: Flow, before: Flow | None, concealed: ConcealedDesign | None
    ) -> TransactionStep:
        """Mark the flow as unsettled; return further writes for its transaction.

        These writes store the deployment and the secrets, and delete old versions.
        """
        await self.unsettled.mark(user.tenant, [flow.id])
        sealed = concealed.new_secrets if concealed else {}
        deploy = await self.deployer.prepare_write(user, flow, before, sealed)

        async def store_related(session: Session) -> None:
            await deploy(session)
            if concealed is not None:
                await self.secrets.add_flow_to_secrets(user.tenant, flow.id, concealed, session)
            if before is not None and flow.version != before.version:
                await self._trim_versions(flow, session)

        return store_related

    async def _trim_versions(self, flow: Flow, session: Session) -> None:
        """Delete old versions with their secrets, except those that current runs need."""
        if flow.version <= MAX_OLD_VERSIONS or flow.version % VERSIONS_BETWEEN_TRIMS:
            return
        needed = await self.runs.list_running_versions(flow.id)
        await self.store.delete_old_versions(
            flow.id, flow.version - MAX_OLD_VERSIONS, needed, session
        )
        marks = find_marks(flow.design)
        async for design in self.store.iterate_old_designs(flow.id, session):
            marks |= find_marks(design)
        await self.secrets.remove_flow_from_others(flow.tenant, flow.id, marks, session)


def _with_changes(flow: Flow, **fields: Any) -> Flow:
    """Return the flow with changes and a later `updated_at`.

    `FlowStore.replace` detects concurrent changes by `updated_at`.
    """
    updated = max(datetime.now(UTC), flow.updated_at + timedelta(milliseconds=1))
    if fields.get("enabled"):
        fields["stopped"] = None
    return msgspec.structs.replace(flow, **fields, updated_at=updated)


def _list_response(flow: Flow, names: Mapping[int, str]) -> FlowResponse:
    return FlowResponse.from_fields(
        flow, user_nickname=names.get(flow.user_id) if flow.user_id is not None else None
    )
