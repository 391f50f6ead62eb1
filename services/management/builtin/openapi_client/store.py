"""The collections of `openapi-client` in MongoDB.

- `openapi_accounts`: `{_id: tenant, secret, url, clientId, lastSync}`; the secret is sent only to
the URL for which it was entered.
- `openapi_links`: `{_id: {tenant, identifier}, link, leftAt?}`: `link` is a `DeviceLink`. `leftAt`
is the time at which a device was excluded from syncs.
- `openapi_commands`: `{_id: command id, carried, keepUntil, told?}`: `carried` is a
`ForwardedCommand` as JSON text. `told` is true for a finished command.
"""

import logging
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from libs.common.clock import from_ms
from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.mongo import Database, DuplicateKey

log = logging.getLogger(__name__)

LinkState = Literal["asked", "here", "left"]

FINISHED_COMMAND_RETENTION = timedelta(hours=1)
"""Time for which a command is kept after it expired, to recognize duplicates."""


class AccountSecret(msgspec.Struct, frozen=True):
    """A secret, with URL and client id for which it was entered, each None if unknown."""

    secret: str
    url: str | None
    client_id: str | None

    def __repr__(self) -> str:
        return "Secret(…)"


class DeviceLink(msgspec.Struct, kw_only=True):
    """A device of this platform, linked with a device of the other platform."""

    url: str
    remote_id: str
    state: LinkState
    """`asked`: not on this platform yet; `here`; `left`: a user deleted the device here."""
    name: str = ""
    model: str = ""
    """Name and model on the other platform at the last import."""
    at: int = 0
    """Time of the newest imported report, ms."""
    seen: dict[str, int] = {}
    """Times of the reports imported shortly before `at`, by digest, to recognize duplicates."""


KEPT_COMMAND_FIELDS = ("commandId", "kind", "expiresAt")
"""The fields of a finished command that are kept."""


class ForwardedCommand(msgspec.Struct, kw_only=True):
    """A command to the other platform."""

    id: int
    tenant: str
    identifier: str
    remote_id: str
    command: dict[str, Any]
    task: str | None = None
    """Id of the command's task on the other platform; None without a task."""
    reply: dict[str, Any] | None = None
    """The reply for `device`; None until the result is known."""


class OpenApiStore:
    """The collections of `openapi-client`; secrets are encrypted per tenant."""

    def __init__(self, database: Database, seal: Seal) -> None:
        self._seal = seal
        self._accounts = database["openapi_accounts"]
        self._links = database["openapi_links"]
        self._commands = database["openapi_commands"]

    async def find_secret(self, tenant: str) -> AccountSecret | None:
        """Return the client secret of a tenant, with its URL and client id.

        Returns None if it is missing, or was encrypted with another key.
        """
        document = await self._accounts.find_one({"_id": tenant})
        if document is None or "secret" not in document:
            return None
        try:
            secret = self._seal.open(document["secret"], tenant)
        except SealBroken:
            log.warning("the secret of %s was encrypted with another key: enter it again", tenant)
            return None
        return AccountSecret(secret, document["url"], document["clientId"])

    async def save_secret(self, tenant: str, secret: AccountSecret) -> None:
        """Store the secret of a tenant."""
        sealed = self._seal.seal(secret.secret, tenant)
        fields = {"secret": sealed, "url": secret.url, "clientId": secret.client_id}
        await self._accounts.update_one({"_id": tenant}, {"$set": fields}, upsert=True)

    async def mark_synced(self, tenant: str) -> None:
        """Store the current time as the end of the latest sync."""
        await self._accounts.update_one(
            {"_id": tenant}, {"$set": {"lastSync": datetime.now(UTC)}}, upsert=True
        )

    async def read_last_sync_times(self) -> dict[str, datetime | None]:
        """Return the tenants with a secret, and the times of their last syncs."""
        cursor = self._accounts.find({"secret": {"$exists": True}}, {"lastSync": 1})
        return {entry["_id"]: entry.get("lastSync") async for entry in cursor}

    async def find_link(self, tenant: str, identifier: str) -> DeviceLink | None:
        """Return the link of a device, or None."""
        document = await self._links.find_one({"_id": _link_id(tenant, identifier)})
        return None if document is None else msgspec.convert(document["link"], DeviceLink)

    async def save_link(self, tenant: str, identifier: str, link: DeviceLink) -> None:
        """Store the link of a device."""
        await self._links.update_one(
            {"_id": _link_id(tenant, identifier)},
            {"$set": {"link": msgspec.to_builtins(link)}, "$unset": {"leftAt": ""}},
            upsert=True,
        )

    async def exclude_device(self, tenant: str, identifier: str) -> None:
        """Exclude a device from syncs; this expires 90 days after the last exclusion."""
        await self._links.update_one(
            {"_id": _link_id(tenant, identifier)},
            {"$set": {"link.state": "left", "leftAt": datetime.now(UTC)}},
        )

    async def add_or_get_command(
        self, remote_command: ForwardedCommand, expires_at: int
    ) -> ForwardedCommand | None:
        """Store a command and return it; return the stored one if its id is known.

        Returns None if the stored one expired without a result.
        """
        keep_until = from_ms(expires_at) + FINISHED_COMMAND_RETENTION
        document = {
            **_encode_command(remote_command),
            "_id": remote_command.id,
            "keepUntil": keep_until,
        }
        try:
            await self._commands.insert_one(document)
        except DuplicateKey:
            stored = await self._commands.find_one({"_id": remote_command.id})
            known = _decode_command(stored) or remote_command
            return None if stored and stored.get("told") and known.reply is None else known
        return remote_command

    async def save_command(self, remote_command: ForwardedCommand) -> None:
        """Store the state of a command."""
        await self._commands.update_one(
            {"_id": remote_command.id}, {"$set": _encode_command(remote_command)}
        )

    async def list_unfinished_commands(self) -> list[ForwardedCommand]:
        """Return unfinished commands."""
        cursor = self._commands.find({"told": {"$ne": True}})
        return [command async for document in cursor if (command := _decode_command(document))]

    async def finish_command(self, remote_command: ForwardedCommand) -> None:
        """Mark a command as finished, and remove its values, which may be secrets."""
        remote_command.command = {
            key: remote_command.command[key]
            for key in KEPT_COMMAND_FIELDS
            if key in remote_command.command
        }
        change = {**_encode_command(remote_command), "told": True}
        await self._commands.update_one({"_id": remote_command.id}, {"$set": change})


def _link_id(tenant: str, identifier: str) -> dict[str, str]:
    return {"tenant": tenant, "identifier": identifier}


def _encode_command(remote_command: ForwardedCommand) -> dict[str, Any]:
    """Return the stored fields; the command is JSON text, as keys of its values may have dots."""
    return {"carried": msgspec.json.encode(remote_command).decode()}


def _decode_command(document: dict[str, Any] | None) -> ForwardedCommand | None:
    return (
        None
        if document is None
        else msgspec.json.decode(document["carried"], type=ForwardedCommand)
    )
