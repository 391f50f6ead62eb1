"""Migrations of members, shapes, things and tags."""

import hashlib

import msgspec

from libs.common.store.migrations import Migration, create_missing
from libs.common.store.mongo import Database, Document
from libs.common.things import SYSTEM
from libs.common.tsl import ParamSpec, TslDocument, iterate_entries, keys_from_ids
from services.device.members.entity import tsl_fields

_MODEL = ("tenant", "model", "tslVersion", "shape")
BY_MEMBERS = (*_MODEL, "entityNames", "integration", "snKey", "name")
"""The fields that counts by model and keyword searches read, in one index."""


async def _make_collections(database: Database) -> None:
    for name in ("members", "shapes", "things"):  # some are written in transactions
        await create_missing(database, name)
    await database["things"].create_index(
        [("tenant", 1), ("integration", 1), ("identifier", 1)], name="thing", unique=True
    )
    devices = database["devices"]
    await devices.create_index([(field, 1) for field in _MODEL], name="model")
    if "product" in await devices.index_information():  # a prefix of the index "model"
        await devices.drop_index("product")


async def _index_shapes(database: Database) -> None:
    """Index the references to shapes, to find and delete unreferenced ones."""
    await database["devices"].create_index("shape", name="shape", sparse=True)
    await database["shapes"].create_index("parent", name="parent", sparse=True)


async def _index_integrations(database: Database) -> None:
    """Index devices by integration."""
    await database["devices"].create_index([("integration", 1), ("_id", 1)], name="integration")


async def _keep_decimal_places(database: Database) -> None:
    """Add `fractionDigits` to the TSLs of custom entities, whose entities had it."""
    query = {"integration": SYSTEM, "members.attribute.fraction_digits": {"$exists": True}}
    async for thing in database["things"].find(query):
        document = msgspec.json.decode(thing["tsl"], type=TslDocument)
        digits = {
            ".".join(filter(None, (thing["identifier"], member["path"]))): member["attribute"]
            for member in thing["members"]
        }
        params = [output for event in document.events for output in event.outputs]
        params += [given for service in document.services for given in service.inputs]
        for entry in [*document.properties, *params]:
            attribute = digits.get(entry.id, {})
            entry.data_spec.fraction_digits = attribute.get("fraction_digits")
        change = {"$set": tsl_fields(document)}
        await database["things"].update_one({"_id": thing["_id"], "hash": thing["hash"]}, change)


async def _make_tags(database: Database) -> None:
    for name in ("entity_tags", "tagged_entities"):  # both are written in transactions
        await create_missing(database, name)
    names = [("tenant", 1), ("name", 1)]
    await database["entity_tags"].create_index(names, name="name", unique=True)
    await database["tagged_entities"].create_index([("tenant", 1), ("tags", 1)], name="tag")


async def _index_members(database: Database) -> None:
    index = [(field, 1) for field in BY_MEMBERS]
    await database["devices"].create_index(index, name="members")


async def _drop_model(database: Database) -> None:
    """Drop the index that replicas without renamed entities use to count devices."""
    if "model" in await database["devices"].index_information():
        await database["devices"].drop_index("model")


async def _ignored_keys(database: Database) -> None:
    """Replace property keys that were ignored on import by ids.

    Devices keep using ids until the product is imported again. `ref` is stored in both places.
    """
    async for stored in database["tsls"].find({}):
        document = msgspec.json.decode(stored["document"], type=TslDocument)
        plain = keys_from_ids(document)
        content = msgspec.json.encode(_with_refs(plain))
        if content == stored["document"]:
            continue
        change: Document = {"document": content, "hash": hashlib.sha256(content).hexdigest()}
        if plain is not document:
            change["keysIgnored"] = True
        same = {"_id": stored["_id"], "hash": stored["hash"]}
        await database["tsls"].update_one(same, {"$set": change})
    async for thing in database["things"].find({"tsl": {"$exists": True}}):
        document = msgspec.json.decode(thing["tsl"], type=TslDocument)
        plain = keys_from_ids(document)
        if plain is not document:
            same = {"_id": thing["_id"], "hash": thing["hash"]}
            await database["things"].update_one(same, {"$set": tsl_fields(plain)})


def _with_refs(document: TslDocument) -> TslDocument:
    for entry in iterate_entries(document):
        if isinstance(entry, ParamSpec) and entry.ref:
            entry.data_spec.ref = entry.ref
    return document


MIGRATIONS = [
    Migration(400, "members, shapes and things", _make_collections),
    Migration(411, "indexes of shapes", _index_shapes),
    Migration(412, "decimal places of custom entities", _keep_decimal_places),
    Migration(500, "devices by integration", _index_integrations),
    Migration(710, "tags of entities", _make_tags),
    Migration(711, "devices by members", _index_members),
    Migration(712, "the index that counted devices by model", _drop_model, contract=True),
    Migration(3104, "property keys that were ignored", _ignored_keys),
]
