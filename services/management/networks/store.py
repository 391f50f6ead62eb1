"""What network servers of tenants need to be kept, in MongoDB.

- `network_servers`: `{_id: {tenant, integration}, client, topics, secrets: {name: {sealed, for}},
  hook}`: `client` names us to a broker, which may have subscriptions to `topics`; a secret is sent
  to nobody but whom it was given for; `hook` is a SHA-256 of what the address of the tenant's
  webhook ends with, unique over all.
- `network_routes`: `{_id: {tenant, integration, identifier}, route}`: where downlinks of a device
  go.
- `network_downlinks`: `{_id: reference, tenant, integration, identifier, downlink, queued, ended,
  at}`: what was given to servers, for what they say of it; for 30 days.
"""

import hashlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

import msgspec
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from libs.common.errors import Conflict
from libs.common.identity.seal import Seal, SealBroken
from libs.common.recent import Recent
from libs.common.store.mongo import Database, present
from services.management.networks.messages import Route

log = logging.getLogger(__name__)

HOOK = "webhook_token"
"""The setting with which the address of a webhook ends."""
MOST_TOPICS = 64
"""Topics that are remembered of a tenant's network server, of which it has six at a time."""
KNOWN_ROUTES = 100_000
"""Routes that a process remembers, so that it does not write what is written."""


async def find_hook(database: Database, token: str) -> tuple[str, str] | None:
    """Return tenant and integration of the webhook whose address ends with `token`."""
    query = {"hook": digest_token(token)}
    found = await database["network_servers"].find_one(query, {"_id": 1})
    return None if found is None else (found["_id"]["tenant"], found["_id"]["integration"])


def digest_token(token: str) -> bytes:
    """What is kept of a token: it is long and random, so a plain digest does not give it away."""
    return hashlib.sha256(token.encode()).digest()


class NetworkStore:
    """The collections of one integration; secrets are sealed for their tenant."""

    def __init__(self, database: Database, seal: Seal, integration: str) -> None:
        self._seal = seal
        self._integration = integration
        self._servers = database["network_servers"]
        self._routes = database["network_routes"]
        self._downlinks = database["network_downlinks"]
        self._known: Recent[tuple[str, str], Route] = Recent(KNOWN_ROUTES)

    async def tenants(self) -> list[str]:
        """Tenants that have ever changed a setting."""
        found = self._servers.find({"_id.integration": self._integration}, {"_id": 1})
        return [one["_id"]["tenant"] async for one in found]

    async def get_client_id(self, tenant: str) -> str:
        """What names us to the broker of a tenant, always the same; the tenant is known then."""
        key = self._key(tenant)
        made = {"client": f"thingway-{secrets.token_hex(6)}"}
        await self._servers.update_one(key, {"$setOnInsert": made}, upsert=True)
        found = await self._servers.find_one(key, {"client": 1})
        return str(found["client"] if found else made["client"])

    async def remember_topics(self, tenant: str, wanted: Sequence[str]) -> list[str]:
        """Remember what is subscribed to next; return it with the last that was before.

        A broker tells it to `client` until it is unsubscribed from, also when another is connected
        to meanwhile.
        """
        new = {"$literal": list(wanted)}
        others = {"input": {"$ifNull": ["$topics", []]}, "cond": {"$not": {"$in": ["$$this", new]}}}
        kept = {"$slice": [{"$concatArrays": [{"$filter": others}, new]}, -MOST_TOPICS]}
        found = await self._servers.find_one_and_update(
            self._key(tenant), [{"$set": {"topics": kept}}], {"topics": 1}, return_document=True
        )
        return list(present(found)["topics"])

    async def save_secret(self, tenant: str, name: str, secret: str, bound: str) -> None:
        """Keep a secret for `bound`, the address that it was given for."""
        kept = {"sealed": self._seal.seal(secret, tenant), "for": bound}
        await self._servers.update_one(self._key(tenant), {"$set": {f"secrets.{name}": kept}})

    async def find_secret(self, tenant: str, name: str, bound: str) -> str | None:
        """A secret for `bound`; None when none was given for it."""
        found = await self._servers.find_one(self._key(tenant), {f"secrets.{name}": 1})
        kept = ((found or {}).get("secrets") or {}).get(name)
        if kept is None or kept["for"] != bound:
            return None
        try:
            return self._seal.open(kept["sealed"], tenant)
        except SealBroken:
            log.warning("%s of %s was kept with another key: give it again", name, tenant)
            return None

    async def save_hook(self, tenant: str, token: str) -> None:
        """Let a webhook come to another address; raise `Conflict` for that of another one."""
        try:
            await self._servers.update_one(
                self._key(tenant), {"$set": {"hook": digest_token(token)}}
            )
        except DuplicateKeyError as error:
            raise Conflict("is that of another webhook: make a new one", field=HOOK) from error

    async def save_routes(self, tenant: str, routes: Mapping[str, Route]) -> None:
        """Remember where downlinks of devices go."""
        new = {one: route for one, route in routes.items() if self._is_new(tenant, one, route)}
        if not new:
            return
        writes = [
            UpdateOne(
                self._key(tenant, identifier=identifier),
                {"$set": {"route": msgspec.to_builtins(route)}},
                upsert=True,
            )
            for identifier, route in new.items()
        ]
        await self._routes.bulk_write(writes, ordered=False)
        for identifier, route in new.items():
            self._known.put((tenant, identifier), route)

    def _is_new(self, tenant: str, identifier: str, route: Route) -> bool:
        return self._known.get((tenant, identifier)) != route

    async def find_route(self, tenant: str, identifier: str) -> Route | None:
        """Where downlinks of a device go, as it was last heard."""
        found = await self._routes.find_one(self._key(tenant, identifier=identifier))
        return None if found is None else msgspec.convert(found["route"], Route)

    async def delete_route(self, tenant: str, identifier: str) -> None:
        """A device is gone."""
        self._known.pop((tenant, identifier))
        await self._routes.delete_one(self._key(tenant, identifier=identifier))

    def create_reference(self, tenant: str, downlink: str) -> str:
        """What a downlink is called at the server: a UUID, always the same one."""
        return str(uuid5(NAMESPACE_URL, f"thingway:{self._integration}/{tenant}/{downlink}"))

    async def register_downlink(self, tenant: str, identifier: str, downlink: str) -> bool:
        """Remember a downlink before it is queued; whether it was not queued yet."""
        fields = {"identifier": identifier, "downlink": downlink, "at": datetime.now(UTC)}
        key = self._own(tenant, self.create_reference(tenant, downlink))
        await self._downlinks.update_one(key, {"$setOnInsert": fields}, upsert=True)
        found = await self._downlinks.find_one(key, {"queued": 1})
        return not (found or {}).get("queued")

    async def mark_queued(self, tenant: str, downlink: str) -> None:
        """The server has taken a downlink."""
        key = self._own(tenant, self.create_reference(tenant, downlink))
        await self._downlinks.update_one(key, {"$set": {"queued": True}})

    async def find_downlink(self, tenant: str, reference: str) -> str | None:
        """Which of our downlinks a reference names; None for those of others."""
        found = await self._downlinks.find_one(self._own(tenant, reference), {"downlink": 1})
        return None if found is None else str(found["downlink"])

    async def end_oldest(self, tenant: str, identifier: str) -> str | None:
        """Which of our downlinks of a device was queued first, of those that have not ended.

        For servers that do not name them. It has ended then, and None is left when all have.
        """
        owner = {"tenant": tenant, "integration": self._integration, "identifier": identifier}
        waiting = {"queued": True, "ended": {"$exists": False}}
        found = await self._downlinks.find_one_and_update(
            owner | waiting, {"$set": {"ended": True}}, sort=[("at", 1)]
        )
        return None if found is None else str(found["downlink"])

    def _own(self, tenant: str, reference: str) -> dict[str, str]:
        return {"_id": reference, "tenant": tenant, "integration": self._integration}

    def _key(self, tenant: str, **more: str) -> dict[str, dict[str, str]]:
        return {"_id": {"tenant": tenant, "integration": self._integration, **more}}
