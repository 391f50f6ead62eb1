"""History on a sharded MongoDB.

The fake answers as MongoDB's documentation of `hello`, `shardCollection`, `listShards` and
`moveRange` describes; no real cluster has been tried.
"""

import logging
from collections import defaultdict
from typing import Any, cast

import pytest
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.errors import OperationFailure

from libs.common.store.migrations import CLUSTERED_OPTIONS
from libs.common.store.mongo import Database, Document
from services.device.telemetry.partitions import Partitions, history_key

WEEK = 2800
NAME = "history_20230831"


class FakeCollection:
    """A collection with documents."""

    def __init__(self) -> None:
        self.documents: list[Document] = []

    async def find_one(self, *_: Any) -> Document | None:
        """Return any document."""
        return next(iter(self.documents), None)

    async def aggregate(self, _: Any) -> "FakeCollection":
        """Return all documents as a sample."""
        return self

    async def __aiter__(self) -> Any:
        for document in self.documents:
            yield document


class FakeRouter:
    """A client, its databases `admin` and `thingway_device`, and the commands that it received."""

    name = "thingway_device"

    def __init__(self, hello: Document, shards: int = 3) -> None:
        self.client = self.admin = self
        self.hello = hello
        self.shards = shards
        self.rejected = ""
        self.commands: list[Any] = []
        self.collections: dict[str, FakeCollection] = defaultdict(FakeCollection)

    def __getitem__(self, name: str) -> FakeCollection:
        return self.collections[name]

    async def create_collection(self, name: str, **options: Any) -> None:
        """Record a new collection."""
        self.commands.append(("create", name, options))

    async def command(self, name: str, value: str = "", **options: Any) -> Document:
        """Record a command and return its reply."""
        if name == "hello":
            return self.hello
        if name == self.rejected:
            raise OperationFailure("not authorized on admin", 13)
        self.commands.append((name, value, options))
        return {"ok": 1.0, "shards": [{"_id": f"shard{n}"} for n in range(self.shards)]}

    async def create_week(self) -> list[Any]:
        """Create the collection of a week twice; return the commands."""
        partitions = Partitions(cast("Database", self))
        await partitions.ensure([WEEK])
        await partitions.ensure([WEEK])
        return self.commands


MONGOS = {"msg": "isdbgrid", "isWritablePrimary": True}
CREATED = ("create", NAME, CLUSTERED_OPTIONS)
SHARDED = ("shardCollection", f"thingway_device.{NAME}", {"key": {"_id": 1}})


def with_devices(*ids: int, shards: int = 3) -> FakeRouter:
    """Return a router of a cluster with devices."""
    router = FakeRouter(MONGOS, shards)
    router["devices"].documents = [{"_id": id_} for id_ in ids]
    return router


def moved(shard: str, low: Any, high: Any) -> Any:
    """Return the command that moves a range."""
    options = {"toShard": shard, "min": {"_id": low}, "max": {"_id": high}}
    return ("moveRange", f"thingway_device.{NAME}", options)


async def test_a_new_week_is_split_at_devices_over_all_shards() -> None:
    commands = await with_devices(6, 2, 3, 1, 5, 4).create_week()

    third, fifth = history_key(3, 0, 0), history_key(5, 0, 0)
    assert commands == [
        CREATED,
        SHARDED,
        ("listShards", "", {}),
        moved("shard0", MinKey(), third),
        moved("shard1", third, fifth),
        moved("shard2", fifth, MaxKey()),
    ]


async def test_fewer_devices_than_shards_use_fewer_shards() -> None:
    commands = await with_devices(7, shards=4).create_week()

    first = history_key(7, 0, 0)
    assert commands[3:] == [moved("shard0", MinKey(), first), moved("shard3", first, MaxKey())]


async def test_a_cluster_without_devices_shards_the_week_and_keeps_it_on_one_shard() -> None:
    commands = await with_devices().create_week()

    assert commands == [CREATED, SHARDED, ("listShards", "", {})]


async def test_a_replica_set_is_not_sharded() -> None:
    commands = await FakeRouter({"setName": "rs0", "isWritablePrimary": True}).create_week()

    assert commands == [CREATED]


async def test_a_week_with_records_stays_where_it_is() -> None:
    router = with_devices(1, 2, 3)
    router[NAME].documents = [{"_id": history_key(1, 0, 0)}]

    assert await router.create_week() == [CREATED]


@pytest.mark.parametrize("command", ["shardCollection", "moveRange"])
async def test_a_rejected_command_is_logged_and_the_week_is_usable(
    command: str, caplog: pytest.LogCaptureFixture
) -> None:
    router = with_devices(1, 2, 3)
    router.rejected = command

    with caplog.at_level(logging.WARNING):
        await router.create_week()

    assert f"thingway_device.{NAME} is not distributed over the shards" in caplog.text
