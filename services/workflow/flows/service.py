"""Saves, shows, enables and deletes flows on behalf of users."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from libs.common.clock import to_ms
from libs.common.contracts.limits import Limits
from libs.common.contracts.names import DescribedFlows, DescribeFlows
from libs.common.errors import Conflict, Forbidden, InvalidInput, NotFound, TooManyRequests
from libs.common.http.console import Page, ids_of, name_of
from libs.common.identity import Principal
from libs.common.identity.functions import Function
from libs.common.identity.grants import Sharing
from libs.common.identity.users import People
from libs.common.limits.tenants import count_limited
from libs.common.store.ids import IdAllocator
from libs.common.store.mongo import Session
from services.workflow.flows.deployment import FlowDeployer
from services.workflow.flows.model import (
    AfterWrite,
    Flow,
    FlowVersion,
    SavedDesign,
    SaveDesign,
    SearchFlows,
    ShownDesign,
    ShownFlow,
    UpdateFlow,
)
from services.workflow.flows.store import FlowStore, UnsettledStore
from services.workflow.graph.design import openable, storable
from services.workflow.runs.store import RunStore
from services.workflow.vault import Concealed, SecretStore, Vault, marks_in

ATTEMPTS = 20
"""Times that a change is tried while others change the same flow."""
KEPT = 50
"""Older versions that a flow keeps: people look back at a few, and each may have 1 MiB."""
EVERY = 10
"""Versions after which the surplus is deleted: that reads all that stay, for their secrets."""

Change = tuple[Flow, Concealed | None]
"""A flow as it is to be, and its secrets when they are to be kept anew."""


@dataclass(frozen=True, kw_only=True)
class FlowService:
    """The operations on flows."""

    store: FlowStore
    unsettled: UnsettledStore
    secrets: SecretStore
    runs: RunStore
    vault: Vault
    deployer: FlowDeployer
    sharing: Sharing
    people: People
    limits: Callable[[str], Limits]
    ids: IdAllocator

    async def search(
        self, user: Principal, wanted: SearchFlows
    ) -> list[ShownFlow] | Page[ShownFlow]:
        """The flows that a user sees, the newest first."""
        grants = await self.sharing.of(user)
        visible = None if grants.everything else sorted(grants.resources.workflows)
        flows, total = await self.store.search(user.tenant, visible, wanted)
        authors = sorted({flow.user_id for flow in flows if flow.user_id is not None})
        names = await self.people.nicknames(user.tenant, authors)
        return wanted.listed([_shown(flow, names) for flow in flows], total)

    async def update(self, user: Principal, flow_id: int, wanted: UpdateFlow) -> None:
        """Set name and remark; the design and its version stay."""
        info = {"name": name_of(wanted.name), "remark": wanted.remark}
        await self._put(user, flow_id, lambda before: (_changed(before, **info), None))

    async def switch(self, user: Principal, flow_id: int, *, enabled: bool) -> None:
        """Enable or disable a flow; one that is so already stays as it is."""

        def switched(before: Flow) -> Change:
            same = before.enabled == enabled
            return (before if same else _changed(before, enabled=enabled)), None

        await self._put(user, flow_id, switched)

    async def delete(self, user: Principal, ids: Sequence[int]) -> None:
        """Delete flows with designs, logs and grants; unknown ones are passed over.

        Raises `Forbidden` for a user who has no grant at all.
        """
        grants = await self.sharing.of(user)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        wanted = [one for one in ids_of(ids) if grants.workflow(one)]
        found = await self.store.present(user.tenant, wanted)
        if not found:
            return

        async def also(session: Session) -> None:
            for flow_id in found:
                await self.deployer.stop(user.tenant, flow_id, session)
            await self.secrets.forget(user.tenant, found, session)
            await self.unsettled.note(user.tenant, found, session)

        await self.store.remove(user.tenant, found, also)
        for flow_id in found:
            await self.deployer.forget(user.tenant, flow_id)
        await self.runs.remove(user.tenant, found)
        await self.sharing.forget(user.tenant, found)

    async def design(self, user: Principal, flow_id: int, version: int | None) -> ShownDesign:
        """A version of a flow's design, the newest when none is named."""
        flow = await self.visible(user, flow_id)
        text: str | None = flow.design
        if version is not None and version > flow.version:
            raise InvalidInput(f"Invalid Version: {version}", field="version")
        if version is not None and version != flow.version:
            text = await self.store.design(user.tenant, flow_id, version)
        if text is None:
            raise NotFound(f"Version Not Found: {version}", field="version")
        return ShownDesign.from_fields(flow, design_data=openable(text))

    async def versions(self, user: Principal, flow_id: int) -> list[FlowVersion]:
        """The versions of a flow's design that are kept, the newest first."""
        flow = await self.visible(user, flow_id)
        replaced = await self.store.versions(user.tenant, flow_id)
        began = {1: to_ms(flow.created_at)} | {number + 1: at for number, at in replaced.items()}
        return [
            FlowVersion(version=number, saved_at=began.get(number))
            for number in (flow.version, *replaced)
        ]

    async def save(self, user: Principal, wanted: SaveDesign) -> SavedDesign:
        """Save a new flow, or a new version of one, which both its id and its version name.

        Its secrets go to the vault. Raises `Conflict` when somebody else has saved since `version`,
        `InvalidInput` with the reasons when it shall run and cannot.
        """
        name = name_of(wanted.name)
        if bool(wanted.id) != (wanted.version is not None):
            missing, given = ("version", "id") if wanted.id else ("id", "version")
            raise InvalidInput(f"is required beside {given}; a new flow has neither", field=missing)
        concealed = self.vault.conceal(user.tenant, storable(wanted.design_data))
        flow = await (
            self._change(user, wanted, name, concealed)
            if wanted.id
            else self._create(user, wanted, name, concealed)
        )
        return SavedDesign(str(flow.id), str(flow.id), flow.version)

    async def visible(self, user: Principal, flow_id: int) -> Flow:
        """A flow, when the user sees it.

        Raises `Forbidden` for a user who has no grant at all, else `NotFound`.
        """
        grants = await self.sharing.of(user)
        if grants.nothing:
            raise Forbidden("user does not have data permission")
        found = await self.store.get(user.tenant, flow_id) if grants.workflow(flow_id) else None
        if found is None:
            raise NotFound(f"flow not exist: {flow_id}", field="id")
        return found

    async def describe(self, wanted: DescribeFlows) -> DescribedFlows:
        """Tell other services which of some flows exist."""
        return DescribedFlows(await self.store.present(wanted.tenant, wanted.ids))

    async def cut_off(self, tenant: str, flow_id: int, version: int, reason: str) -> bool:
        """Disable a flow on behalf of the engine, whoever made it; people see the `reason`.

        False when it does not run this version any more.
        """
        flow = await self.store.get(tenant, flow_id)
        if flow is None or not flow.enabled or flow.version != version:
            return False

        async def also(session: Session) -> None:
            await self.deployer.stop(tenant, flow_id, session)

        off = _changed(flow, enabled=False, stopped=reason)
        if not await self.store.replace(flow, off, also):
            return False
        await self.deployer.changed(tenant, flow_id)
        return True

    async def _create(
        self, user: Principal, wanted: SaveDesign, name: str, concealed: Concealed
    ) -> Flow:
        """Add a flow. The grants come first, as a grant of nothing does no harm."""
        if not user.may(Function.WORKFLOW_ADD):
            raise Forbidden("user does not have permission")
        if await self.store.count(user.tenant) >= self.limits(user.tenant).flows:
            count_limited("flows", user.tenant)
            raise TooManyRequests("there are as many flows as there may be", retry_after=60.0)
        now = datetime.now(UTC)
        flow = Flow(
            id=await self.ids.take(),
            tenant=user.tenant,
            name=name,
            remark=wanted.remark or "",
            enabled=bool(wanted.enabled),
            version=1,
            design=concealed.text,
            user_id=user.user_id,
            created_at=now,
            updated_at=now,
        )
        also = await self._prepared(user, flow, None, concealed)
        try:
            await self.sharing.share(user, flow.id)
            await self.store.insert(flow, also)
        except Exception:
            await self.sharing.forget(user.tenant, [flow.id])
            await self.deployer.forget(user.tenant, flow.id)
            raise
        await self.deployer.changed(user.tenant, flow.id)
        return flow

    async def _change(
        self, user: Principal, wanted: SaveDesign, name: str, concealed: Concealed
    ) -> Flow:
        if not user.may(Function.WORKFLOW_EDIT):
            raise Forbidden("user does not have permission")

        def saved(before: Flow) -> Change:
            if wanted.version != before.version:
                text = f"Version Expired: {wanted.version}"
                raise Conflict(text, field="version", code=InvalidInput.code)
            same = wanted.design_data is None
            kept = self.vault.conceal(user.tenant, before.design) if same else concealed
            after = _changed(
                before,
                name=name,
                remark=before.remark if wanted.remark is None else wanted.remark,
                enabled=before.enabled if wanted.enabled is None else wanted.enabled,
                design=kept.text,
                version=before.version + (kept.text != before.design),
            )
            return after, kept

        return await self._put(user, wanted.id or 0, saved)

    async def _put(self, user: Principal, flow_id: int, change: Callable[[Flow], Change]) -> Flow:
        """Change a flow from what it is at that moment.

        When somebody else was faster, it is done anew from what they made of it.
        """
        for _ in range(ATTEMPTS):
            before = await self.visible(user, flow_id)
            after, concealed = change(before)
            if after is before:
                return before
            also = await self._prepared(user, after, before, concealed)
            if await self.store.replace(before, after, also):
                await self.deployer.changed(user.tenant, after.id)
                return after
        raise Conflict(f"flow {flow_id} is being changed by others; try again", field="id")

    async def _prepared(
        self, user: Principal, flow: Flow, before: Flow | None, concealed: Concealed | None
    ) -> AfterWrite:
        """What belongs into the transaction that stores a flow, its secrets among it."""
        await self.unsettled.note(user.tenant, [flow.id])
        sealed = concealed.given if concealed else {}
        after = await self.deployer.ready(user, flow, before, sealed)

        async def also(session: Session) -> None:
            await after(session)
            if concealed is not None:
                await self.secrets.keep(user.tenant, flow.id, concealed, session)
            if before is not None and flow.version != before.version:
                await self._trim(flow, session)

        return also

    async def _trim(self, flow: Flow, session: Session) -> None:
        """Delete old versions, but for those that runs in hand need, with their secrets."""
        if flow.version <= KEPT or flow.version % EVERY:
            return
        needed = await self.runs.versions_in_hand(flow.id)
        await self.store.trim(flow.id, flow.version - KEPT, needed, session)
        marks = marks_in(flow.design)
        async for design in self.store.designs(flow.id, session):
            marks |= marks_in(design)
        await self.secrets.keep_only(flow.tenant, flow.id, marks, session)


def _changed(flow: Flow, **fields: Any) -> Flow:
    """The flow as it is to be; its time of change tells it from what it was."""
    updated = max(datetime.now(UTC), flow.updated_at + timedelta(milliseconds=1))
    if fields.get("enabled"):
        fields["stopped"] = None
    return msgspec.structs.replace(flow, **fields, updated_at=updated)


def _shown(flow: Flow, names: Mapping[int, str]) -> ShownFlow:
    return ShownFlow.from_fields(
        flow, user_nickname=names.get(flow.user_id) if flow.user_id is not None else None
    )
