"""Everything that grows has an end, and `docs/reference/retention.md` says which."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient

from deploy.local.process import PROJECT_ROOT
from libs.common.store.redis import Redis
from services.auth.migrations import INDEXES_BY_COLLECTION
from tests.e2e.callers import Application
from tests.e2e.platform import Platform

PAGE = PROJECT_ROOT / "docs/reference/retention.md"
SYSTEM = {"admin", "config", "local"}
"""MongoDB's own databases."""


def rows(part: str) -> list[re.Pattern[str]]:
    """Return the names in the first column of a table; `{…}` matches any text."""
    text = Path(PAGE).read_text().partition(f"## {part}\n")[2].partition("\n## ")[0]
    cells = (line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))
    names = (name for cell in cells for name in re.findall(r"`([^`]+)`", cell))
    return [re.compile(re.sub(r"\\\{.*?\\\}", ".+", re.escape(name))) for name in names]


def without_row(part: str, names: set[str]) -> list[str]:
    """Return those of `names` that have no row."""
    patterns = rows(part)
    assert patterns
    return sorted(name for name in names if not any(each.fullmatch(name) for each in patterns))


@pytest.fixture(scope="module")
def mongo(platform: Platform) -> Iterator[MongoClient[dict[str, object]]]:
    """MongoDB, as its administrator."""
    state = platform.state
    login = f"admin:{state.secrets['mongo.admin']}"
    with MongoClient[dict[str, object]](
        f"mongodb://{login}@127.0.0.1:{state.ports['mongod']}/?directConnection=true"
    ) as client:
        yield client


def test_every_collection_is_bounded(
    mongo: MongoClient[dict[str, object]], application: Application
) -> None:
    """Each collection of every service is on the page."""
    found = {
        f"{database.removeprefix('thingway_')}.{collection}"
        for database in set(mongo.list_database_names()) - SYSTEM
        for collection in mongo[database].list_collection_names()
    }
    assert {f"auth.{name}" for name in INDEXES_BY_COLLECTION} <= found
    assert without_row("Collections", found) == []


@pytest.mark.parametrize(
    "name",
    [
        "device.commands",
        "device.command_turns",
        "device.uplinks_seen",
        "management.integrations",
        "management.openapi_links",
        "management.openapi_commands",
        "management.network_downlinks",
        "auth.audit",
    ],
)
def test_mongodb_removes_expired_documents(
    mongo: MongoClient[dict[str, object]], application: Application, name: str
) -> None:
    """The services have created the index for it."""
    database, _, collection = name.partition(".")
    indexes = mongo[f"thingway_{database}"][collection].index_information()
    assert [index for index in indexes.values() if "expireAfterSeconds" in index]


async def test_every_stream_and_consumer_is_bounded(
    platform: Platform, application: Application
) -> None:
    """Ours, those of applications, and what nats-server makes for MQTT."""
    async with platform.admin() as client:
        js = client.jetstream()
        streams = {str(info.config.name) for info in await js.streams_info()}
        consumers = {
            f"{stream}/{consumer.name}"
            for stream in streams
            for consumer in await js.consumers_info(stream)
        }
    assert {"UPLINK", "EVENTS", "DEAD"} <= streams
    assert without_row("Streams and consumers", streams | consumers) == []


async def test_every_redis_key_is_bounded(platform: Platform, application: Application) -> None:
    """Each key in Redis is on the page."""
    state = platform.state
    login = f"auth:{state.secrets['redis.auth']}"
    redis = Redis.from_url(f"redis://{login}@127.0.0.1:{state.ports['redis']}/0")
    found = {key.decode() async for key in redis.scan_iter(count=1000)}
    await redis.aclose()
    assert any(key.startswith("tw:token:") for key in found)
    assert without_row("Redis keys", found) == []
