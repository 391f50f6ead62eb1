"""What `openapi-client` keeps in MongoDB.

- `openapi_accounts`: `{_id: tenant, secret, url, clientId, lastSync}`; the secret is sent to no
  other address than that it was given for.
- `openapi_links`: `{_id: {tenant, identifier}, url, remoteId, state, name, model, at, seen}`: a
  device here and there, and how far its history has come; `leftAt` of one that is not wanted.
- `openapi_commands`: `{_id: command id, tenant, identifier, command, task, reply, keepUntil}`.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from libs.common.clock import from_ms
from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.mongo import Database, DuplicateKey

log = logging.getLogger(__name__)

State = Literal["asked", "here", "left"]

KEEP = timedelta(hours=1)
"""How long after its end a command is remembered, for copies of it."""


class Secret(msgspec.Struct, frozen=True):
    """A secret and what it was given for; None when that was not known yet."""

    secret: str
    url: str | None
    client_id: str | None

    def __repr__(self) -> str:
        return "Secret(…)"


class Link(msgspec.Struct, kw_only=True):
    """A device of ours and its like at the other platform."""

    url: str
    remote_id: str
    state: State
    """`asked` until it is known to exist here; `left` when people deleted it here."""
    name: str = ""
    model: str = ""
    """Name and model there when they were last taken over."""
    at: int = 0
    """Time of the newest report that was taken over, ms."""
    seen: dict[str, int] = {}
    """Reports shortly before `at` by digest, so that later ones are told from them."""


ENVELOPE = ("commandId", "kind", "expiresAt")
"""What is kept of a command that has ended."""


class CarriedCommand(msgspec.Struct, kw_only=True):
    """A command on its way."""

    id: int
    tenant: str
    identifier: str
    remote_id: str
    command: dict[str, Any]
    task: str | None = None
    """Its task at the other platform."""
    reply: dict[str, Any] | None = None
    """What became of it."""


class OpenApiStore:
    """The three collections; secrets are sealed for their tenant."""

    def __init__(self, database: Database, seal: Seal) -> None:
        self._seal = seal
        self._accounts = database["openapi_accounts"]
        self._links = database["openapi_links"]
        self._commands = database["openapi_commands"]

    async def find_secret(self, tenant: str) -> Secret | None:
        """The secret of a tenant."""
        found = await self._accounts.find_one({"_id": tenant})
        if found is None or "secret" not in found:
            return None
        try:
            secret = self._seal.open(found["secret"], tenant)
        except SealBroken:
            log.warning("the secret of %s was kept with another key: give it again", tenant)
            return None
        return Secret(secret, found["url"], found["clientId"])

    async def save_secret(self, tenant: str, secret: Secret) -> None:
        """Set the secret of a tenant."""
        sealed = self._seal.seal(secret.secret, tenant)
        fields = {"secret": sealed, "url": secret.url, "clientId": secret.client_id}
        await self._accounts.update_one({"_id": tenant}, {"$set": fields}, upsert=True)

    async def mark_synced(self, tenant: str) -> None:
        """Remember that a sync has ended."""
        await self._accounts.update_one(
            {"_id": tenant}, {"$set": {"lastSync": datetime.now(UTC)}}, upsert=True
        )

    async def list_tenants(self) -> dict[str, datetime | None]:
        """Tenants with a secret, and when they were last synced."""
        found = self._accounts.find({"secret": {"$exists": True}}, {"lastSync": 1})
        return {one["_id"]: one.get("lastSync") async for one in found}

    async def find_link(self, tenant: str, identifier: str) -> Link | None:
        """The link of a device."""
        found = await self._links.find_one({"_id": _key(tenant, identifier)})
        return None if found is None else msgspec.convert(found["link"], Link)

    async def save_link(self, tenant: str, identifier: str, link: Link) -> None:
        """Write the link of a device."""
        await self._links.update_one(
            {"_id": _key(tenant, identifier)},
            {"$set": {"link": msgspec.to_builtins(link)}, "$unset": {"leftAt": ""}},
            upsert=True,
        )

    async def mark_left(self, tenant: str, identifier: str) -> None:
        """Remember that a device is not wanted here, for as long as it is seen there."""
        await self._links.update_one(
            {"_id": _key(tenant, identifier)},
            {"$set": {"link.state": "left", "leftAt": datetime.now(UTC)}},
        )

    async def add_command(self, carried: CarriedCommand, expires_at: int) -> CarriedCommand:
        """Keep a command that came, or give the one that is kept already."""
        keep_until = from_ms(expires_at) + KEEP
        document = {**_fields(carried), "_id": carried.id, "keepUntil": keep_until}
        try:
            await self._commands.insert_one(document)
        except DuplicateKey:
            return _carried(await self._commands.find_one({"_id": carried.id})) or carried
        return carried

    async def save_command(self, carried: CarriedCommand) -> None:
        """Write what has become of a command."""
        await self._commands.update_one({"_id": carried.id}, {"$set": _fields(carried)})

    async def list_open_commands(self) -> list[CarriedCommand]:
        """Commands without an end."""
        found = self._commands.find({"told": {"$ne": True}})
        return [one async for document in found if (one := _carried(document))]

    async def close_command(self, carried: CarriedCommand) -> None:
        """The platform knows the end of a command; what it set, a secret perhaps, is removed."""
        carried.command = {key: carried.command[key] for key in ENVELOPE if key in carried.command}
        change = {**_fields(carried), "told": True}
        await self._commands.update_one({"_id": carried.id}, {"$set": change})


def _key(tenant: str, identifier: str) -> dict[str, str]:
    return {"tenant": tenant, "identifier": identifier}


def _fields(carried: CarriedCommand) -> dict[str, Any]:
    """JSON keeps a command as it is: keys of its values may have dots."""
    return {"carried": msgspec.json.encode(carried).decode()}


def _carried(document: dict[str, Any] | None) -> CarriedCommand | None:
    return (
        None if document is None else msgspec.json.decode(document["carried"], type=CarriedCommand)
    )
