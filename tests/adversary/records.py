"""What is kept of the others, read with the operator's logins: streams, consumers, documents."""

from collections.abc import Iterator
from typing import Any

import msgspec
from nats.aio.client import Client as NatsClient
from pymongo import MongoClient

from tests.adversary.town import Home
from tests.e2e.platform import Platform
from tests.e2e.waiting import PATIENCE

PASSING = {
    "leases",
    "revocations",
    "outbox",
    "uplinks_seen",
    "replicas",
    "counters",
    "ledger",
    "unsettled",
}
"""Collections whose documents come and go by themselves."""
MOVING = ("attempts", "nextSendAt", "unpublished", "erased", "conceals")
"""Fields that jobs change: of a command without an answer, and the marks of the job that erases
write-only values every five minutes."""
MEASURED = ("EVENTS", "DEAD")
"""Streams of which only age and size take messages away."""
DEVICES = "thingway_device"
"""The database where a number may be the id of a device; elsewhere it is that of something else."""
_KEY_BYTES = 8
"""With the id of a device in so many bytes the keys of its history begin."""

Json = dict[str, Any]
Documents = dict[str, Any]


class Streams(msgspec.Struct, frozen=True):
    """The streams and the consumers on them."""

    configs: dict[str, Json]
    consumers: dict[str, Json]
    """By stream and name: configuration, and how far it has come where others may not move it."""
    first: dict[str, int]
    """The first sequence of each of `MEASURED`."""


async def read_streams(admin: NatsClient, homes: tuple[Home, ...]) -> Streams:
    """Return the state of JetStream for the households and the services."""
    configs, first = {}, {}
    consumers: dict[str, Json] = {}
    for stream in await _pages(admin, "$JS.API.STREAM.LIST", "streams"):
        name = stream["config"]["name"]
        configs[name] = stream["config"]
        if name in MEASURED:
            first[name] = max(stream["state"]["first_seq"], 1)  # 0 before its first message
        for consumer in await _pages(admin, f"$JS.API.CONSUMER.LIST.{name}", "consumers"):
            kept = _kept(consumer, homes)
            if kept is not None:
                consumers[f"{name}/{consumer['name']}"] = kept
    return Streams(configs, consumers, first)


async def _pages(admin: NatsClient, subject: str, what: str) -> list[Json]:
    found: list[Json] = []
    while True:
        body = msgspec.json.encode({"offset": len(found)})
        answer = msgspec.json.decode((await admin.request(subject, body, timeout=PATIENCE)).data)
        found += answer[what] or []
        if len(found) >= answer["total"] or not answer[what]:
            return found


def _kept(consumer: Json, homes: tuple[Home, ...]) -> Json | None:
    """Return the protected state of a consumer; None if it belongs to none of `homes`."""
    config = consumer["config"]
    config.pop("metadata", None)
    owners = {home.application.client_id for home in homes}
    if consumer["name"] in owners:
        return {"config": config, "acked": consumer["ack_floor"], "given": consumer["delivered"]}
    filters = " ".join((config.get("filter_subject") or "", *(config.get("filter_subjects") or ())))
    if any(home.sleeper.sn in filters for home in homes):
        return {"config": config, "waiting": consumer["num_pending"] + consumer["num_ack_pending"]}
    if "$MQTT" in filters and not any(home.device.sn in filters for home in homes):
        return None  # a session of somebody else, or of nats-server's own
    named = config.get("durable_name") in {"ingest", "auth", "workflow"}
    return {"config": config} if named or "$MQTT" in filters else None


def read_documents(client: MongoClient[Json], home: Home, *, tenant: bool) -> Documents:
    """Return the documents about a household; with `tenant`, about its whole tenant."""
    marks = home.marks | ({home.tenant} if tenant else set())
    keys = {mark.to_bytes(_KEY_BYTES, "big") for mark in marks if isinstance(mark, int)}
    found = {}
    for database in client.list_database_names():
        if not database.startswith("thingway"):
            continue
        known = marks if database == DEVICES else {one for one in marks if isinstance(one, str)}
        for name in client[database].list_collection_names():
            if name in PASSING:
                continue
            for document in client[database][name].find(_range(name, keys)):
                if any(_names(value, known, keys) for value in _values(document)):
                    kept = {key: document[key] for key in document if key not in MOVING}
                    found[f"{database}.{name}/{document['_id']!r}"] = kept
    return found


def _range(name: str, keys: set[bytes]) -> Json:
    """Return the filter for a collection.

    Of a long collection, whose keys begin with a device, it selects the household's devices.
    """
    if not name.startswith("history_") and name != "device_events":
        return {}
    end = b"\xff" * _KEY_BYTES * 2
    return {"$or": [{"_id": {"$gt": key, "$lt": key + end}} for key in keys]}


def _names(value: Any, marks: set[str | int], keys: set[bytes]) -> bool:
    if isinstance(value, bytes):
        return value[:_KEY_BYTES] in keys
    return isinstance(value, str | int) and value in marks


def _values(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        for value in node.values():
            yield from _values(value)
    elif isinstance(node, list):
        for value in node:
            yield from _values(value)
    else:
        yield node


def connect_mongo(platform: Platform) -> MongoClient[Json]:
    """MongoDB as its administrator."""
    state = platform.state
    login = f"admin:{state.secrets['mongo.admin']}"
    return MongoClient(
        f"mongodb://{login}@127.0.0.1:{state.ports['mongod']}/?directConnection=true"
    )
