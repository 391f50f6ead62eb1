"""Stored data of network servers in MongoDB.

- `network_servers`: `{_id: {tenant, integration}, client, topics, secrets: {name: {sealed, for}},
hook}`: `client` is the client id at the broker, which may remember subscriptions to `topics`; a
secret is sent only to the broker for which it was entered; `hook` is the SHA-256 of the token of
the tenant's webhook, globally unique.
- `network_routes`: `{_id: {tenant, integration, identifier}, route}`: the destination of a device's
downlinks.
- `network_downlinks`: `{_id: reference, tenant, integration, identifier, downlink, queued, ended,
at}`: downlinks at servers, kept for 30 days to assign their states.
"""

import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

import msgspec
from pymongo import UpdateOne

from libs.common.errors import Conflict
from libs.common.identity.seal import Seal, SealBroken
from libs.common.lru_cache import LruCache
from libs.common.store.mongo import Database, raise_on_duplicate, require_document
from services.management.networks.messages import DownlinkRoute

log = logging.getLogger(__name__)

WEBHOOK_SETTING = "webhook_token"
"""The setting with the token of a webhook."""
MAX_REMEMBERED_TOPICS = 64
"""Maximum topics that are remembered per network server, which has up to six at a time."""
MAX_CACHED_ROUTES = 100_000
"""Maximum cached routes of a process, which writes only changed ones."""


async def find_hook_tenant_and_integration(
    database: Database, token: str
) -> tuple[str, str] | None:
    """Return tenant and integration of the webhook with `token`, or None."""
    query = {"hook": digest_token(token)}
    document = await database["network_servers"].find_one(query, {"_id": 1})
    return None if document is None else (document["_id"]["tenant"], document["_id"]["integration"])


def digest_token(token: str) -> bytes:
    """Return the stored digest of a token, which is random, so that a plain hash suffices."""
    return hashlib.sha256(token.encode()).digest()


class NetworkStore:
    """Stored data of one integration's tenants; secrets are encrypted per tenant."""

    def __init__(self, database: Database, seal: Seal, integration: str) -> None:
        self._seal = seal
        self._integration = integration
        self._servers = database["network_servers"]
        self._routes = database["network_routes"]
        self._downlinks = database["network_downlinks"]
        self._known: LruCache[tuple[str, str], DownlinkRoute] = LruCache(MAX_CACHED_ROUTES)

    async def list_configured_tenants(self) -> list[str]:
        """Return the tenants that have ever changed a setting."""
        cursor = self._servers.find({"_id.integration": self._integration}, {"_id": 1})
        return [group["_id"]["tenant"] async for group in cursor]

    async def get_or_create_client_id(self, tenant: str) -> str:
        """Return the constant client id for a tenant's broker, created if missing."""
        key = self._id_with_integration(tenant)
        made = {"client": f"thingway-{secrets.token_hex(6)}"}
        await self._servers.update_one(key, {"$setOnInsert": made}, upsert=True)
        document = await self._servers.find_one(key, {"client": 1})
        return str(document["client"] if document else made["client"])

    async def remember_and_list_topics(self, tenant: str, topics: Sequence[str]) -> list[str]:
        """Store the topics to subscribe to; return them and the latest previous topics.

        A broker delivers a topic to `client` until it is unsubscribed, even if another broker was
        used meanwhile.
        """
        new = {"$literal": list(topics)}
        others = {"input": {"$ifNull": ["$topics", []]}, "cond": {"$not": {"$in": ["$$this", new]}}}
        topics_update = {
            "$slice": [{"$concatArrays": [{"$filter": others}, new]}, -MAX_REMEMBERED_TOPICS]
        }
        document = await self._servers.find_one_and_update(
            self._id_with_integration(tenant),
            [{"$set": {"topics": topics_update}}],
            {"topics": 1},
            return_document=True,
        )
        return list(require_document(document)["topics"])

    async def save_secret(self, tenant: str, name: str, secret: str, bound_to: str) -> None:
        """Store a secret, with the destination for which it was entered.

        `bound_to` is this destination, for example user and broker, or the URL of an API.
        """
        stored_secret = {"sealed": self._seal.seal(secret, tenant), "for": bound_to}
        await self._servers.update_one(
            self._id_with_integration(tenant), {"$set": {f"secrets.{name}": stored_secret}}
        )

    async def find_secret(self, tenant: str, name: str, bound_to: str) -> str | None:
        """Return the secret that was entered for the destination `bound_to`, else None."""
        document = await self._servers.find_one(
            self._id_with_integration(tenant), {f"secrets.{name}": 1}
        )
        stored_secret = ((document or {}).get("secrets") or {}).get(name)
        if stored_secret is None or stored_secret["for"] != bound_to:
            return None
        try:
            return self._seal.open(stored_secret["sealed"], tenant)
        except SealBroken:
            log.warning("%s of %s was encrypted with another key: enter it again", name, tenant)
            return None

    async def save_hook(self, tenant: str, token: str) -> None:
        """Set the token of a webhook; raise `Conflict` if another webhook has it."""
        change = {"$set": {"hook": digest_token(token)}}
        conflict = Conflict("is used by another webhook: generate a new one", field=WEBHOOK_SETTING)
        with raise_on_duplicate(conflict):
            await self._servers.update_one(self._id_with_integration(tenant), change)

    async def save_routes(self, tenant: str, routes: Mapping[str, DownlinkRoute]) -> None:
        """Store the destinations of devices' downlinks."""
        new = {
            identifier: route
            for identifier, route in routes.items()
            if self._is_uncached(tenant, identifier, route)
        }
        if not new:
            return
        writes = [
            UpdateOne(
                self._id_with_integration(tenant, identifier=identifier),
                {"$set": {"route": msgspec.to_builtins(route)}},
                upsert=True,
            )
            for identifier, route in new.items()
        ]
        await self._routes.bulk_write(writes, ordered=False)
        for identifier, route in new.items():
            self._known.put((tenant, identifier), route)

    def _is_uncached(self, tenant: str, identifier: str, route: DownlinkRoute) -> bool:
        return self._known.get((tenant, identifier)) != route

    async def find_route(self, tenant: str, identifier: str) -> DownlinkRoute | None:
        """Return the last known destination of a device's downlinks, or None."""
        document = await self._routes.find_one(
            self._id_with_integration(tenant, identifier=identifier)
        )
        return None if document is None else msgspec.convert(document["route"], DownlinkRoute)

    async def delete_route(self, tenant: str, identifier: str) -> None:
        """Delete the route of a device."""
        self._known.pop((tenant, identifier))
        await self._routes.delete_one(self._id_with_integration(tenant, identifier=identifier))

    def derive_reference(self, tenant: str, downlink: str) -> str:
        """Return the reference of a downlink at the server, a UUID derived from its id."""
        return str(uuid5(NAMESPACE_URL, f"thingway:{self._integration}/{tenant}/{downlink}"))

    async def register_downlink(self, tenant: str, identifier: str, downlink: str) -> bool:
        """Store a downlink before it is queued at the server; return False if it is queued."""
        fields = {"identifier": identifier, "downlink": downlink, "at": datetime.now(UTC)}
        key = self._downlink_key(tenant, self.derive_reference(tenant, downlink))
        await self._downlinks.update_one(key, {"$setOnInsert": fields}, upsert=True)
        document = await self._downlinks.find_one(key, {"queued": 1})
        return not (document or {}).get("queued")

    async def mark_queued(self, tenant: str, downlink: str) -> None:
        """Mark a downlink as queued at the server."""
        key = self._downlink_key(tenant, self.derive_reference(tenant, downlink))
        await self._downlinks.update_one(key, {"$set": {"queued": True}})

    async def find_downlink_id(self, tenant: str, reference: str) -> str | None:
        """Return the downlink id of a reference; None for a downlink of another client."""
        document = await self._downlinks.find_one(
            self._downlink_key(tenant, reference), {"downlink": 1}
        )
        return None if document is None else str(document["downlink"])

    async def end_oldest_downlink(self, tenant: str, identifier: str) -> str | None:
        """Mark the oldest pending downlink of a device as ended; return its id or None.

        For servers that do not identify downlinks.
        """
        owner = {"tenant": tenant, "integration": self._integration, "identifier": identifier}
        waiting = {"queued": True, "ended": {"$exists": False}}
        document = await self._downlinks.find_one_and_update(
            owner | waiting, {"$set": {"ended": True}}, sort=[("at", 1)]
        )
        return None if document is None else str(document["downlink"])

    def _downlink_key(self, tenant: str, reference: str) -> dict[str, str]:
        return {"_id": reference, "tenant": tenant, "integration": self._integration}

    def _id_with_integration(self, tenant: str, **more: str) -> dict[str, dict[str, str]]:
        return {"_id": {"tenant": tenant, "integration": self._integration, **more}}
