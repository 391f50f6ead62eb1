"""Connections of devices, presence over HTTP, and RPC operations on connections.

`connections`: `{_id: {server, cid}, user}`, `user` in upper case. A device is ONLINE while it has a
connection, or until `httpUntil` of its record. Connections, states and events change in one
transaction. Devices without `httpUntil` cost the periodic check nothing.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

from nats.errors import Error as NatsError

from libs.common.bus import Outbox, OutboxEntry, RpcServer
from libs.common.bus.event_shortening import encode_shortened_event
from libs.common.bus.subjects import device_event
from libs.common.clock import from_ms, now_ms
from libs.common.contracts.auth import Connection, Connections, Done, FindConnections
from libs.common.contracts.events import DeviceConnection
from libs.common.errors import Unavailable
from libs.common.jobs import NamedTasks, gather_limited
from libs.common.lru_cache import LruCache
from libs.common.scheduling import FairScheduler, LaneFull
from libs.common.store.mongo import Mongo, Session, StoreError
from services.device.telemetry.system_account import ConnectedUser, SystemAccount
from services.device.things.device_store import DeviceStore
from services.device.things.model import DeviceWithPresence, Thing, event_profile
from services.device.things.product_store import ProductStore

MAX_CHANGES = 500
"""Maximum connections or devices that one transaction changes."""
MAX_USER_CONNECTIONS_READ = 2_000
"""Maximum connections of a user that a query returns."""
_MAX_CID = 2**63 - 1


class PresenceStore:
    """Writes connections and connection states."""

    def __init__(self, mongo: Mongo, outbox: Outbox, devices: DeviceStore) -> None:
        self._mongo = mongo
        self._devices = devices.presence
        self._connections = mongo.database["connections"]
        self._turn = mongo.database["presence_turn"]
        self._outbox = outbox

    async def connections(self, user: str) -> list[Connection]:
        """Return the known connections of a user (upper case)."""
        cursor = self._connections.find({"user": user}, {"_id": 1}).limit(MAX_USER_CONNECTIONS_READ)
        return [_connection(row) async for row in cursor]

    async def list_server_connections(
        self, server: str, after: int, until: int | None
    ) -> list[ConnectedUser]:
        """Return up to `MAX_CHANGES` connections of a server with `after` < cid <= `until`."""
        last = _MAX_CID if until is None else until
        between = {"$gt": _key(Connection(server, after)), "$lte": _key(Connection(server, last))}
        cursor = self._connections.find({"_id": between}).sort("_id", 1).limit(MAX_CHANGES)
        return [ConnectedUser(_connection(row), row["user"]) async for row in cursor]

    async def servers(self) -> set[str]:
        """Return the servers with known connections, with one index lookup for each."""
        servers: set[str] = set()
        above = Connection("", 0)
        while True:
            query = {"_id": {"$gt": _key(above)}}
            row = await self._connections.find_one(query, sort=[("_id", 1)])
            if row is None:
                return servers
            servers.add(row["_id"]["server"])
            above = Connection(row["_id"]["server"], _MAX_CID)

    async def apply_and_list_opened(
        self, opened: Iterable[ConnectedUser], ended: Iterable[ConnectedUser]
    ) -> list[int]:
        """Apply up to `MAX_CHANGES` new and ended connections; known changes have no effect.

        Return the ids of the devices in `opened`."""
        opened_by_id = {user.connection: user for user in opened}
        ended_by_id = {user.connection: user for user in ended}

        async def write_connections(session: Session) -> tuple[list[int], list[dict[str, Any]]]:
            await self._lock(session)
            await self._write_connections(opened_by_id, ended_by_id, session)
            new = {user.name for user in opened_by_id.values() if user.is_device}
            ended_users = {user.name for user in ended_by_id.values() if user.is_device}
            connected = await self._filter_connected(new | ended_users, session)
            # a device that lost one of several connections keeps its state
            devices = await self._devices.find_by_serials(new | ended_users - connected, session)
            written = await self._update_states(devices, connected, session)
            return [device.id for device in devices if device.sn_key in new], written

        ids, written = await self._mongo.transaction(write_connections)
        await self._outbox.publish_stored(written)
        return ids

    async def has_lifetime_ending_within(self, seconds: float) -> bool:
        """Return whether the HTTP lifetime of any device ends within `seconds`."""
        moment = datetime.now(UTC) + timedelta(seconds=seconds)
        return await self._devices.has_expired_lifetime(moment)

    async def expire_http_lifetimes(self) -> int:
        """Update up to `MAX_CHANGES` devices whose HTTP lifetime ended; return their number.

        They become OFFLINE unless they are connected.
        """
        now = datetime.now(UTC)
        if not await self._devices.has_expired_lifetime(now):
            return 0

        async def update_silent(session: Session) -> tuple[int, list[dict[str, Any]]]:
            await self._lock(session)
            devices = await self._devices.pop_expired_lifetimes(now, MAX_CHANGES, session)
            connected = await self._filter_connected({device.sn_key for device in devices}, session)
            return len(devices), await self._update_states(devices, connected, session)

        number, written = await self._mongo.transaction(update_silent)
        await self._outbox.publish_stored(written)
        return number

    async def record_contact(self, device_id: int, at: datetime, lifetime: timedelta) -> None:
        """Record a contact: ONLINE for `lifetime`. Raises `StoreError` for a locked record."""
        if await self._devices.record_contact(device_id, at, lifetime) not in (None, "ONLINE"):
            await self._set_online([device_id], at, lifetime)

    async def record_contacts(self, ids: list[int], at: datetime, lifetime: timedelta) -> None:
        """Record contacts of several devices, with one write for the ONLINE ones."""
        online = await self._devices.record_online_contacts(ids, at, lifetime)
        others = [device_id for device_id in ids if device_id not in online]
        for first in range(0, len(others), MAX_CHANGES):
            await self._set_online(others[first : first + MAX_CHANGES], at, lifetime)

    async def _set_online(self, ids: Sequence[int], at: datetime, lifetime: timedelta) -> None:
        """Make devices ONLINE that had a contact."""

        async def update_devices(session: Session) -> list[dict[str, Any]]:
            await self._devices.rewrite_contacts(ids, at, lifetime, session)
            devices = await self._devices.find_by_ids(ids, session)
            connected = await self._filter_connected({device.sn_key for device in devices}, session)
            return await self._update_states(devices, connected, session)

        await self._outbox.publish_stored(await self._mongo.transaction(update_devices))

    async def _lock(self, session: Session) -> None:
        """Change a lock document: of two replicas that both lead, one transaction must wait."""
        query, change = {"_id": "presence"}, {"$inc": {"taken": 1}}
        await self._turn.update_one(query, change, upsert=True, session=session)

    async def _write_connections(
        self,
        opened: dict[Connection, ConnectedUser],
        ended: dict[Connection, ConnectedUser],
        session: Session,
    ) -> None:
        ids = [_key(connection) for connection in opened]
        known_users = {
            _connection(row)
            async for row in self._connections.find({"_id": {"$in": ids}}, session=session)
        }
        rows = [
            {"_id": _key(connection), "user": user.name}
            for connection, user in opened.items()
            if connection not in known_users
        ]
        if rows:
            await self._connections.insert_many(rows, session=session)
        if ended:
            query = {"_id": {"$in": [_key(connection) for connection in ended]}}
            await self._connections.delete_many(query, session=session)

    async def _filter_connected(self, users: Collection[str], session: Session) -> set[str]:
        """Return those of `users` that have a connection."""
        query = {"user": {"$in": list(users)}}
        return set(await self._connections.distinct("user", query, session=session))

    async def _update_states(
        self, devices: Sequence[DeviceWithPresence], connected: Collection[str], session: Session
    ) -> list[dict[str, Any]]:
        """Update the states of devices; return the outbox entries of their events."""
        now = datetime.now(UTC)
        online: list[DeviceWithPresence] = []
        offline: list[DeviceWithPresence] = []
        for device in devices:
            until = device.http_until
            on = device.sn_key in connected or (until is not None and until > now)
            was = device.connect_status == "ONLINE"
            if on != was:
                (online if on else offline).append(device)
        entries = await self._set_status(online, "ONLINE", session)
        entries += await self._set_status(offline, "OFFLINE", session)
        return await self._outbox.store_entries(entries, session)

    async def _set_status(
        self, devices: Collection[DeviceWithPresence], status: str, session: Session
    ) -> list[OutboxEntry]:
        if devices:
            await self._devices.set_status([device.id for device in devices], status, session)
        return [_status_event(device, status) for device in devices]


def _key(connection: Connection) -> dict[str, Any]:
    """Return the stored form, which sorts by server, then by number."""
    return {"server": connection.server, "cid": connection.cid}


def _connection(row: dict[str, Any]) -> Connection:
    return Connection(row["_id"]["server"], row["_id"]["cid"])


def _status_event(device: DeviceWithPresence, status: str) -> OutboxEntry:
    body = DeviceConnection(
        event_id=uuid4().hex,
        created_at=now_ms(),
        tenant=device.tenant,
        device=event_profile(device),
        connect_status="ONLINE" if status == "ONLINE" else "OFFLINE",
    )
    subject = device_event(device.tenant, device.id, status.lower())
    return OutboxEntry(subject, encode_shortened_event(body))


CONCURRENT_CLOSES = 64
"""Connections of one request that are closed concurrently."""


def offer_connections(rpc: RpcServer, store: PresenceStore, account: SystemAccount) -> None:
    """Offer the RPC operations that find and close connections."""

    async def find(request: FindConnections) -> Connections:
        connections = set(await store.connections(request.user.upper()))
        if request.ask_servers:
            try:
                for server in await account.cached_servers():
                    users = await account.list_user_connections(server, request.user)
                    connections.update(user.connection for user in users)
            except (NatsError, TimeoutError) as error:
                raise Unavailable("NATS does not list its connections") from error
        return Connections(list(connections))

    async def close(request: Connections) -> Done:
        await gather_limited(
            CONCURRENT_CLOSES,
            (partial(account.close, connection) for connection in request.connections),
        )
        return Done()

    rpc.offer("find_connections", FindConnections, find)
    rpc.offer("close_connections", Connections, close)


log = logging.getLogger(__name__)

TIMEOUT_CACHE_SECONDS = 5.0
"""Seconds that the offline timeout of a product is cached."""
PRODUCT_CACHE_SIZE = 10_000
"""Maximum products whose offline timeouts are cached."""


class OfflineTimeouts:
    """Caches the offline timeouts of products for some seconds."""

    def __init__(self, products: ProductStore) -> None:
        self._products = products
        self._cached_timeouts: LruCache[tuple[str, str], tuple[float, float | None]] = LruCache(
            PRODUCT_CACHE_SIZE
        )

    async def find_lifetime(self, thing: Thing) -> float | None:
        """Return the product's offline timeout in s, None without one; raise `StoreError`."""
        key, now = (thing.tenant, thing.model), time.monotonic()
        cached = self._cached_timeouts.get(key)
        if cached is None or cached[0] + TIMEOUT_CACHE_SECONDS <= now:
            minutes = await self._products.find_offline_timeout_minutes(*key)
            cached = now, None if minutes is None else minutes * 60.0
            self._cached_timeouts.put(key, cached)
        return cached[1]


MAX_RECORD_INTERVAL_SECONDS = 30.0
"""Maximum seconds between two recorded contacts of one device that sends reports."""
MAX_RECORD_WAIT_SECONDS = 1.0
"""Maximum seconds that a report waits until the contact is recorded."""
RETRY_DELAY_SECONDS = 1.0
"""Seconds until a failed record is tried again."""
CACHE_SIZE = 50_000
"""Devices whose last recorded contact is cached; others are recorded with their next report."""
CONCURRENT_WRITES = 32
"""Maximum concurrent writes; one tenant may use half."""


class _Contact(NamedTuple):
    moment: float
    """Monotonic time of the contact."""
    at: datetime


class HttpPresence:
    """Records contacts of devices: requests over HTTP, and messages through integrations.

    A device is recorded once per `MAX_RECORD_INTERVAL_SECONDS`, or per quarter of its lifetime if
    that is shorter. The database delays a message by at most `MAX_RECORD_WAIT_SECONDS`. Each record
    is tried until it succeeds, or until the lifetime after the contact has ended.
    """

    def __init__(self, store: PresenceStore, lifetime: float, timeouts: OfflineTimeouts) -> None:
        """`lifetime` is the lifetime in seconds of devices whose product has no offline timeout."""
        self._store = store
        self._lifetime = timedelta(seconds=lifetime)
        self._timeouts = timeouts
        self._quiet: LruCache[int, float] = LruCache(CACHE_SIZE)
        """Monotonic time until which a contact of a device need not be recorded, by device."""
        self._contacts: dict[int, _Contact] = {}
        """The last contacts that are not recorded yet."""
        self._together: set[int] = set()
        """Devices that are being recorded together."""
        self._tasks = NamedTasks()
        self._scheduler = FairScheduler("presence over HTTP", CONCURRENT_WRITES, items=CACHE_SIZE)

    async def record_contact(self, thing: Thing) -> None:
        """Record a contact; return when it is stored, or after `MAX_RECORD_WAIT_SECONDS`."""
        if not self.was_recorded_recently(thing):
            moment = time.monotonic()
            self._contacts[thing.id] = _Contact(moment, datetime.now(UTC))
            task = self._tasks.start(thing.id, partial(self._record, thing))
            if task is not None:
                await asyncio.wait([task], timeout=MAX_RECORD_WAIT_SECONDS)

    async def record_contacts(self, things: Iterable[Thing]) -> None:
        """Record contacts of several devices; return like `record_contact`."""
        pending = self._contacts.keys() | self._together
        tenants: dict[str, dict[int, Thing]] = defaultdict(dict)
        for thing in things:
            if thing.id not in pending and not self.was_recorded_recently(thing):
                tenants[thing.tenant][thing.id] = thing
        begun = []
        for tenant, by_id in tenants.items():
            self._together |= by_id.keys()
            record = partial(self._record_together, tenant, by_id)
            begun.append(self._tasks.start(object(), record))
        if tasks := [task for task in begun if task is not None]:
            await asyncio.wait(tasks, timeout=MAX_RECORD_WAIT_SECONDS)

    async def _record_together(self, tenant: str, things: Mapping[int, Thing]) -> None:
        """Record devices of a tenant together; one by one if that fails."""
        contact = _Contact(time.monotonic(), from_ms(now_ms()))
        ids_by_lifetime: dict[timedelta, list[int]] = defaultdict(list)
        try:
            for key, thing in things.items():
                ids_by_lifetime[await self._find_lifetime(thing)].append(key)
            for lifetime, ids in ids_by_lifetime.items():
                async with self._scheduler.slot(tenant):
                    await self._store.record_contacts(ids, contact.at, lifetime)
                for key in ids:
                    self._mark_recorded(key, contact, lifetime)
        except (StoreError, LaneFull) as error:
            number = len(things)
            log.warning("contacts of %d devices could not be recorded together: %r", number, error)
            for key, thing in things.items():
                self._contacts.setdefault(key, contact)
                self._tasks.start(key, partial(self._record, thing))
        finally:
            self._together -= things.keys()

    async def _find_lifetime(self, thing: Thing) -> timedelta:
        seconds = await self._timeouts.find_lifetime(thing)
        return timedelta(seconds=seconds) if seconds else self._lifetime

    def _mark_recorded(self, key: int, contact: _Contact, lifetime: timedelta) -> None:
        seconds = min(MAX_RECORD_INTERVAL_SECONDS, lifetime.total_seconds() / 4)
        self._quiet.put(key, contact.moment + seconds)

    def was_recorded_recently(self, thing: Thing) -> bool:
        """Return whether the last recorded contact is so recent that another adds nothing."""
        return (self._quiet.get(thing.id) or 0.0) > time.monotonic()

    async def stop(self) -> None:
        """Stop; contacts that are not recorded are lost until the next reports."""
        await self._tasks.stop()

    async def _record(self, thing: Thing) -> None:
        lifetime = self._lifetime
        while (contact := self._contacts[thing.id]).at + lifetime > datetime.now(UTC):
            try:
                lifetime = await self._find_lifetime(thing)
                async with self._scheduler.slot(thing.tenant):
                    await self._store.record_contact(thing.id, contact.at, lifetime)
            except (StoreError, LaneFull) as error:
                log.warning("a contact of device %d is not recorded yet: %r", thing.id, error)
                await asyncio.sleep(RETRY_DELAY_SECONDS)
            else:
                self._mark_recorded(thing.id, contact, lifetime)
                if self._contacts[thing.id] is contact:
                    break
        del self._contacts[thing.id]
