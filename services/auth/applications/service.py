"""Operations on applications, for super-admins and other services."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from msgspec.structs import replace

from libs.common.bus import RpcClient, RpcServer
from libs.common.contracts.auth import (
    ASSIGN_DEVICE,
    RECLAIM_DEVICE,
    Application,
    ApplicationRef,
    Applications,
    ApplicationSecret,
    AssignDevice,
    CreateApplication,
    Done,
    ListApplications,
    OwnedDevice,
    ReclaimDevice,
)
from libs.common.errors import InvalidInput, NotFound
from libs.common.http.console import parse_name
from libs.common.identity import Caller, PrincipalKind
from libs.common.identity.networks import normalize_network
from libs.common.store.mongo import Session
from services.auth.accounts.tenants import TenantStore
from services.auth.applications.model import (
    ApplicationSearch,
    ApplicationUpdate,
    NewApplication,
    StoredApplication,
)
from services.auth.applications.store import ApplicationStore
from services.auth.changes import ChangeRunner, ChangeTransaction, build_operator_caller
from services.auth.client_secrets import generate_secret, hash_secret

MAX_NAME_CHARACTERS = 64
"""Maximum characters of an application's name."""


@dataclass(frozen=True)
class ApplicationService:
    """The operations on applications, each in the tenant of its caller."""

    store: ApplicationStore
    changes: ChangeRunner
    tenants: TenantStore
    rpc: RpcClient
    """Client of `device`, which assigns devices to applications."""

    async def create(self, caller: Caller, request: NewApplication) -> ApplicationSecret:
        """Add an application and return it with its secret.

        Raises `InvalidInput`, `Conflict`, `TooManyRequests` if a limit is reached, and `NotFound`
        if the tenant does not exist.
        """
        name = parse_name(request.name, maximum=MAX_NAME_CHARACTERS)
        allowed = parse_allow_list(request.allowed_addresses)
        if not await self.tenants.exists(caller.tenant):
            raise NotFound(f"tenant `{caller.tenant}` does not exist", field="tenant")
        secret = generate_secret()
        application = StoredApplication(
            id=await self.store.next_id(),
            tenant=caller.tenant,
            name=name,
            client_id=str(uuid4()),
            secret_hash=hash_secret(secret),
            generation=1,
            events=request.events,
            allowed_addresses=allowed,
            created_at=datetime.now(UTC),
        )

        async def insert_application(change: ChangeTransaction) -> None:
            await change.reserve("applications")
            if application.events:
                await change.reserve("consumers")
            await self.store.add(application, change.session)
            change.record("created", application.audit_target, after=application.audit_fields)

        await self.changes.run(caller, insert_application)
        return _with_secret(application, secret)

    async def get(
        self, caller: Caller, application_id: int, session: Session | None = None
    ) -> StoredApplication:
        """Return one application; raise `NotFound`."""
        application = await self.store.get(application_id, caller.tenant, session)
        if application is None:
            raise NotFound(f"application {application_id} does not exist", field="application_id")
        return application

    async def list_all(self, caller: Caller) -> Sequence[StoredApplication]:
        """Return all applications, sorted by name."""
        return await self.store.list_all(caller.tenant)

    async def search(
        self, caller: Caller, request: ApplicationSearch
    ) -> tuple[Sequence[StoredApplication], int]:
        """Return one page of the matching applications and the number of all matches."""
        return await self.store.search(caller.tenant, request)

    async def update(self, caller: Caller, application_id: int, request: ApplicationUpdate) -> None:
        """Rename an application and set whether it may read events.

        If it may no longer read events, its NATS connections are closed. Raises `InvalidInput`,
        `NotFound`, `Conflict` and `TooManyRequests`.
        """
        name = parse_name(request.name, maximum=MAX_NAME_CHARACTERS)

        def alter(before: StoredApplication) -> StoredApplication:
            events = before.events if request.events is None else request.events
            return replace(before, name=name, events=events)

        await self._update_if_changed(caller, application_id, alter)

    async def set_allowed_addresses(
        self, caller: Caller, application_id: int, addresses: Sequence[str]
    ) -> StoredApplication:
        """Set the allow-list; if it changes, revoke tokens and close connections.

        Raises `InvalidInput` and `NotFound`.
        """
        allowed = parse_allow_list(addresses)

        def alter(before: StoredApplication) -> StoredApplication:
            if allowed == before.allowed_addresses:
                return before
            return replace(with_next_generation(before), allowed_addresses=allowed)

        return await self._update_if_changed(caller, application_id, alter)

    async def rotate_secret(self, caller: Caller, application_id: int) -> ApplicationSecret:
        """Replace the secret; the old secret and all tokens are revoked on return."""
        secret = generate_secret()

        def alter(before: StoredApplication) -> StoredApplication:
            return replace(with_next_generation(before), secret_hash=hash_secret(secret))

        return _with_secret(
            await self._update_if_changed(caller, application_id, alter, "rotated"), secret
        )

    async def delete(self, caller: Caller, application_id: int) -> None:
        """Delete an application; its tokens are revoked on return."""

        async def delete_application(change: ChangeTransaction) -> None:
            application = await self.get(caller, application_id, change.session)
            await self.store.remove(application, change.session)
            change.record("deleted", application.audit_target, before=application.audit_fields)
            generation = with_next_generation(application).generation
            user = application.nats_user if application.events else ""
            change.revoke_tokens(PrincipalKind.APPLICATION, str(application_id), generation, user)

        await self.changes.run(caller, delete_application)

    async def assign_device(self, caller: Caller, application_id: int, device_id: int) -> None:
        """Assign a device to the application; raise `NotFound` and `Conflict`.

        Idempotent. The audit log records each repetition, so that it lacks no assignment after a
        crash.
        """
        application = await self.get(caller, application_id)
        request = AssignDevice(application.tenant, device_id, application.id, application.name)
        device = await self.rpc.call(ASSIGN_DEVICE, request, OwnedDevice)
        await self._record_device_change(caller, application, "device_given", device_id, device)

    async def return_device(self, caller: Caller, application_id: int, device_id: int) -> None:
        """Return a device of the application to the users; raises as `assign_device`."""
        application = await self.get(caller, application_id)
        user_id = caller.principal.user_id
        request = ReclaimDevice(application.tenant, device_id, application.id, user_id)
        device = await self.rpc.call(RECLAIM_DEVICE, request, OwnedDevice)
        await self._record_device_change(caller, application, "device_taken", device_id, device)

    async def _record_device_change(
        self,
        caller: Caller,
        application: StoredApplication,
        action: str,
        device_id: int,
        device: OwnedDevice,
    ) -> None:
        fields = {"device_id": str(device_id), "sn": device.sn, "name": device.name}
        await self.changes.record(caller, action, application.audit_target, after=fields)

    async def _update_if_changed(
        self,
        caller: Caller,
        application_id: int,
        alter: Callable[[StoredApplication], StoredApplication],
        action: str = "updated",
    ) -> StoredApplication:
        """Store the application that `alter` returns and record the change, if any."""

        async def update_application(change: ChangeTransaction) -> StoredApplication:
            before = await self.get(caller, application_id, change.session)
            after = alter(before)
            if after.events and not before.events:
                await change.reserve("consumers")
            if after != before:
                await self.store.replace(after, change.session)
                old, new = before.audit_fields, after.audit_fields
                names = [name for name in old if old[name] != new[name]]
                changed = [{name: fields[name] for name in names} or None for fields in (old, new)]
                change.record(action, after.audit_target, *changed)
            user = before.nats_user if before.events else ""
            if after.generation > before.generation:
                change.revoke_tokens(
                    PrincipalKind.APPLICATION, str(application_id), after.generation, user
                )
            elif before.events and not after.events:
                change.close_connections(user)
            return after

        return await self.changes.run(caller, update_application)


def with_next_generation(application: StoredApplication) -> StoredApplication:
    """Return the application with the next generation, which revokes its tokens."""
    return replace(application, generation=application.generation + 1)


def parse_allow_list(addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the normalized allow-list without duplicates; raise `InvalidInput`."""
    entries: dict[str, None] = {}
    for at, text in enumerate(addresses):
        try:
            entries[normalize_network(text)] = None
        except ValueError as error:
            raise InvalidInput(str(error), field=f"allowed_addresses[{at}]") from error
    return tuple(entries)


def _with_secret(application: StoredApplication, secret: str) -> ApplicationSecret:
    return ApplicationSecret(
        application_id=application.id,
        name=application.name,
        client_id=application.client_id,
        client_secret=secret,
    )


def offer_applications(rpc: RpcServer, service: ApplicationService) -> None:
    """Offer the operations on applications, called as the tenant's operator."""

    async def create(request: CreateApplication) -> ApplicationSecret:
        new = NewApplication(name=request.name, events=request.events)
        return await service.create(build_operator_caller(request.tenant), new)

    async def every(request: ListApplications) -> Applications:
        applications = await service.list_all(build_operator_caller(request.tenant))
        return Applications([application.rpc_contract for application in applications])

    async def get(request: ApplicationRef) -> Application:
        return (
            await service.get(build_operator_caller(request.tenant), request.application_id)
        ).rpc_contract

    async def rotate(request: ApplicationRef) -> ApplicationSecret:
        return await service.rotate_secret(
            build_operator_caller(request.tenant), request.application_id
        )

    async def delete(request: ApplicationRef) -> Done:
        await service.delete(build_operator_caller(request.tenant), request.application_id)
        return Done()

    rpc.offer("create_application", CreateApplication, create)
    rpc.offer("list_applications", ListApplications, every)
    rpc.offer("get_application", ApplicationRef, get)
    rpc.offer("rotate_application_secret", ApplicationRef, rotate)
    rpc.offer("delete_application", ApplicationRef, delete)
