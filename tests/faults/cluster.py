"""A cluster as faults see it: who leads where, whether it is whole, and what its stores hold."""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from redis.asyncio import Redis
from redis.exceptions import RedisError

from deploy.local.servers import CLUSTER_SIZE, MONGOD, NATS, REDIS, REDIS_SERVER_COUNT
from deploy.platform.services import SERVICES
from deploy.platform.state import member_name
from libs.common.bus import STREAM_CONFIGS, UPLINK
from tests.e2e.platform import Platform
from tests.e2e.waiting import until
from tests.faults.places import Places

META = "meta"
"""Who leads NATS's cluster, which places streams."""
SERVICES_NAMES = tuple(one.name for one in SERVICES)
WHOLE = 180.0
"""Seconds in which a cluster is whole again after a fault."""
_SERVING = (1, 2)
_FAULTS = (PyMongoError, NatsError, JetStreamError, RedisError, OSError, TimeoutError)


class Cluster(Platform):
    """One `tests.faults.up`."""

    def __init__(self, directory: Path, options: list[str], places: Places | None) -> None:
        super().__init__(directory, command=(sys.executable, "-m", "tests.faults.up", *options))
        self.places = places

    @contextlib.asynccontextmanager
    async def mongo(self, *members: str) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
        """Connect to MongoDB as its administrator: the replica set, or one member."""
        state = self.state
        which = "directConnection=true" if members else "replicaSet=rs0"
        hosts = ",".join(members or state.member_addresses(MONGOD))
        url = f"mongodb://admin:{state.secrets['mongo.admin']}@{hosts}/?{which}"
        async with AsyncMongoClient(url, serverSelectionTimeoutMS=3000) as client:
            yield client

    async def leaders(self) -> dict[str, int]:
        """Return the number of the leading member, by kind of store."""
        async with self.mongo() as client:
            status = await client.admin.command("replSetGetStatus")
        primary = next(member["_id"] + 1 for member in status["members"] if member["state"] == 1)
        async with self.admin() as client:
            cluster = (await client.jetstream().stream_info(UPLINK)).cluster
        assert cluster is not None
        assert cluster.leader is not None
        roles = [await self._role(number) for number in range(1, REDIS_SERVER_COUNT + 1)]
        return {
            MONGOD: primary,
            NATS: int(cluster.leader.rpartition("-")[2]),
            REDIS: roles.index("master") + 1,
            META: self._meta_leader(),
        }

    def _meta_leader(self) -> int:
        """Return the NATS server with the latest log line about its leadership."""
        said = {
            line.split(" [INF]")[0].partition("] ")[2]: number
            for number in range(1, CLUSTER_SIZE + 1)
            for line in self._log(member_name(NATS, number)).read_text().splitlines()
            if "Self is new JetStream cluster metadata leader" in line
        }
        return said[max(said)]

    def _log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    async def _role(self, number: int) -> str:
        state = self.state
        host, _, port = state.member_addresses(REDIS, REDIS_SERVER_COUNT)[number - 1].rpartition(
            ":"
        )
        async with Redis(
            host=host,
            port=int(port),
            username="sentinel",
            password=state.secrets["redis.sentinel"],
            socket_timeout=3,
            decode_responses=True,
        ) as redis:
            role = await redis.role()
            return str(role[0]) if role[0] == "master" else str(role[3])

    async def whole(self) -> None:
        """Wait until every process runs and every member has caught up."""

        async def is_whole() -> bool:
            try:
                async with asyncio.timeout(20):
                    return await self._is_whole()
            except _FAULTS:
                return False

        await until(is_whole, WHOLE)

    async def _is_whole(self) -> bool:
        async with self.mongo() as client:
            status = await client.admin.command("replSetGetStatus")
        if [member["state"] for member in status["members"] if member["state"] not in _SERVING]:
            return False
        async with self.admin() as client:
            stream = client.jetstream()
            for name in STREAM_CONFIGS:
                cluster = (await stream.stream_info(name)).cluster
                if cluster is None or not cluster.leader or cluster.replicas is None:
                    return False
                if len(cluster.replicas) != CLUSTER_SIZE - 1:
                    return False
                if any(replica.offline or not replica.current for replica in cluster.replicas):
                    return False
        roles = sorted([await self._role(number) for number in range(1, REDIS_SERVER_COUNT + 1)])
        return roles == ["connected", "master"] and await self._all_answer()

    async def _all_answer(self) -> bool:
        pids = self.ready.pids
        return all(name in pids for name in SERVICES_NAMES)

    async def counted(self, device: int, prefix: str) -> tuple[Counter[int], Counter[str]]:
        """Count the commands of a device and the SNs with a prefix in the store."""
        async with self.mongo() as client:
            database = client["thingway_device"]
            commands = [
                one["payload"] async for one in database["commands"].find({"thingId": device})
            ]
            devices = database["devices"].find({"sn": {"$regex": f"^{prefix}"}})
            serials = [one["sn"] async for one in devices]
        values = [payload["properties"]["interval"] for payload in commands]
        return Counter(values), Counter(serials)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process of the cluster."""
        os.kill(self.ready.pids[name], number)

    async def returned(self, name: str, old: int) -> None:
        """Wait until a process that has ended runs again."""

        async def again() -> bool:
            return self.ready.pids.get(name, old) != old

        await until(again, 60)


def members_of(kind: str) -> list[str]:
    """Return the names of the members of a store."""
    count = REDIS_SERVER_COUNT if kind == REDIS else CLUSTER_SIZE
    return [member_name(kind, number) for number in range(1, count + 1)]
