"""Creates, finds, changes and deletes applications: for super-admins and for other services."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from libs.common.contracts.auth import ApplicationSecret, OwnedDevice
from libs.common.errors import InvalidInput, NotFound
from libs.common.http.console import name_of
from libs.common.identity import Caller, Kind
from libs.common.identity.networks import normalised
from services.auth.accounts.tenants import TenantStore
from services.auth.applications.devices import DevicesOverRpc
from services.auth.applications.schemas import (
    ApplicationSearch,
    ApplicationUpdate,
    NewApplication,
    StoredApplication,
)
from services.auth.applications.store import ApplicationStore
from services.auth.audit.schemas import Deed
from services.auth.changes import Change, Changes
from services.auth.secret_hash import new_secret, secret_hash

MAX_NAME = 64
"""Most characters of an application's name."""


@dataclass(frozen=True)
class ApplicationService:
    """The operations on applications, each in the tenant of its caller."""

    store: ApplicationStore
    changes: Changes
    tenants: TenantStore
    next_id: Callable[[], Awaitable[int]]
    devices: DevicesOverRpc

    async def create(self, caller: Caller, wanted: NewApplication) -> ApplicationSecret:
        """Add an application; the secret is shown once.

        Raises `InvalidInput`, `Conflict`, and `NotFound` when there is no such tenant.
        """
        tenant = caller.principal.tenant
        name = name_of(wanted.name, most=MAX_NAME)
        allowed = allow_list(wanted.allowed_addresses)
        if not await self.tenants.exists(tenant):
            raise NotFound(f"there is no tenant {tenant!r}", field="tenant")
        secret = new_secret()
        application = StoredApplication(
            id=await self.next_id(),
            tenant=tenant,
            name=name,
            client_id=str(uuid4()),
            secret_hash=secret_hash(secret),
            generation=1,
            events=wanted.events,
            allowed_addresses=allowed,
            created_at=datetime.now(UTC),
        )

        async def work(change: Change) -> None:
            await change.reserve("applications")
            if application.events:
                await change.reserve("consumers")
            await self.store.add(application, change.session)
            change.record(
                Deed(action="created", subject=application.subject, after=application.told)
            )

        await self.changes.run(caller, work)
        return _with_secret(application, secret)

    async def get(self, caller: Caller, application_id: int) -> StoredApplication:
        """One application; raise `NotFound`."""
        found = await self.store.get(application_id, caller.principal.tenant)
        return _found(found, application_id)

    async def all(self, caller: Caller) -> Sequence[StoredApplication]:
        """All applications by name."""
        return await self.store.all(caller.principal.tenant)

    async def search(
        self, caller: Caller, wanted: ApplicationSearch
    ) -> tuple[Sequence[StoredApplication], int]:
        """The applications that were asked for, and how many there are of them."""
        return await self.store.search(caller.principal.tenant, wanted)

    async def update(self, caller: Caller, application_id: int, wanted: ApplicationUpdate) -> None:
        """Rename an application and say whether it may read events.

        Without events its connections to the bus end. Raises `InvalidInput`, `NotFound`
        and `Conflict`.
        """
        name = name_of(wanted.name, most=MAX_NAME)

        def alter(before: StoredApplication) -> StoredApplication:
            events = before.events if wanted.events is None else wanted.events
            return replace(before, name=name, events=events)

        await self._change(caller, application_id, alter)

    async def allow(
        self, caller: Caller, application_id: int, addresses: Sequence[str]
    ) -> StoredApplication:
        """Set the addresses that it may call from; tokens and connections of before end.

        Raises `InvalidInput` and `NotFound`.
        """
        allowed = allow_list(addresses)

        def alter(before: StoredApplication) -> StoredApplication:
            if allowed == before.allowed_addresses:
                return before
            return replace(raised(before), allowed_addresses=allowed)

        return await self._change(caller, application_id, alter)

    async def rotate(self, caller: Caller, application_id: int) -> ApplicationSecret:
        """Make a new secret; the old one and every token are dead when this returns."""
        secret = new_secret()

        def alter(before: StoredApplication) -> StoredApplication:
            return replace(raised(before), secret_hash=secret_hash(secret))

        return _with_secret(await self._change(caller, application_id, alter, "rotated"), secret)

    async def delete(self, caller: Caller, application_id: int) -> None:
        """Remove an application; its tokens are dead when this returns."""

        async def work(change: Change) -> None:
            found = await self.store.get(application_id, caller.principal.tenant, change.session)
            application = _found(found, application_id)
            await self.store.remove(application, change.session)
            change.record(
                Deed(action="deleted", subject=application.subject, before=application.told)
            )
            generation = raised(application).generation
            user = application.user if application.events else ""
            change.revoke(Kind.APPLICATION, str(application_id), generation, user)

        await self.changes.run(caller, work)

    async def give(self, caller: Caller, application_id: int, device_id: int) -> None:
        """Let the application have a device; raise `NotFound` and `Conflict`. Repeatable.

        Each repetition is told again, so that none is lost when something breaks in between.
        """
        application = await self.get(caller, application_id)
        device = await self.devices.give(application, device_id)
        await self._tell_of(caller, application, "device_given", device_id, device)

    async def take(self, caller: Caller, application_id: int, device_id: int) -> None:
        """Let the users have a device of the application again; as `give`."""
        application = await self.get(caller, application_id)
        device = await self.devices.take(application, device_id, caller.principal.user_id)
        await self._tell_of(caller, application, "device_taken", device_id, device)

    async def _tell_of(
        self,
        caller: Caller,
        application: StoredApplication,
        action: str,
        device_id: int,
        device: OwnedDevice,
    ) -> None:
        told = {"device_id": str(device_id), "sn": device.sn, "name": device.name}

        async def work(change: Change) -> None:
            change.record(Deed(action=action, subject=application.subject, after=told))

        await self.changes.run(caller, work)

    async def _change(
        self,
        caller: Caller,
        application_id: int,
        alter: Callable[[StoredApplication], StoredApplication],
        action: str = "updated",
    ) -> StoredApplication:
        """Read, alter and write; what changes nothing is neither written nor told."""

        async def work(change: Change) -> StoredApplication:
            found = await self.store.get(application_id, caller.principal.tenant, change.session)
            before = _found(found, application_id)
            after = alter(before)
            if after.events and not before.events:
                await change.reserve("consumers")
            if after != before:
                await self.store.replace(after, change.session)
                change.record(_deed(action, before, after))
            user = before.user if before.events else ""
            if after.generation > before.generation:
                change.revoke(Kind.APPLICATION, str(application_id), after.generation, user)
            elif before.events and not after.events:
                change.disconnect(user)
            return after

        return await self.changes.run(caller, work)


def raised(application: StoredApplication) -> StoredApplication:
    """The application one generation on, which voids every token that it has."""
    return replace(application, generation=application.generation + 1)


def allow_list(addresses: Sequence[str]) -> tuple[str, ...]:
    """The list in its shortest spelling, each entry once; raise `InvalidInput`."""
    found: dict[str, None] = {}
    for at, text in enumerate(addresses):
        try:
            found[normalised(text)] = None
        except ValueError as error:
            raise InvalidInput(str(error), field=f"allowed_addresses[{at}]") from error
    return tuple(found)


def _deed(action: str, before: StoredApplication, after: StoredApplication) -> Deed:
    """What was done, with the values that it changed."""
    old, new = before.told, after.told
    changed = [name for name in old if old[name] != new[name]]
    return Deed(
        action=action,
        subject=after.subject,
        before=_part(old, changed),
        after=_part(new, changed),
    )


def _part(whole: dict[str, Any], names: Sequence[str]) -> dict[str, Any] | None:
    return {name: whole[name] for name in names} or None


def _with_secret(application: StoredApplication, secret: str) -> ApplicationSecret:
    return ApplicationSecret(
        application_id=application.id,
        name=application.name,
        client_id=application.client_id,
        client_secret=secret,
    )


def _found(found: StoredApplication | None, application_id: int) -> StoredApplication:
    if found is None:
        raise NotFound(f"there is no application {application_id}", field="application_id")
    return found
