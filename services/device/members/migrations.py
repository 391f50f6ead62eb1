"""Collections and indexes of entities."""

import hashlib

import msgspec

from libs.common.store.migrations import Migration
from libs.common.store.mongo import Database, Document, create_missing
from libs.common.things import SYSTEM
from libs.common.tsl import ParamSpec, TslDocument, entries_of, with_keys_of_ids
from services.device.members.entity import tsl_fields

_MODEL = ("tenant", "model", "tslVersion", "shape")
BY_MEMBERS = (*_MODEL, "entityNames", "integration", "snKey", "name")
"""What devices are counted by, and what keywords look at: so that no document is read."""


async def _make_collections(database: Database) -> None:
    for name in ("members", "shapes", "things"):  # some are written in transactions
        await create_missing(database, name)
    await database["things"].create_index(
        [("tenant", 1), ("integration", 1), ("identifier", 1)], name="thing", unique=True
    )
    devices = database["devices"]
    await devices.create_index([(field, 1) for field in _MODEL], name="model")
    if "product" in await devices.index_information():  # which is a part of that one
        await devices.drop_index("product")


async def _index_shapes(database: Database) -> None:
    """By what names a shape: so that one that nobody names is found, and deleted."""
    await database["devices"].create_index("shape", name="shape", sparse=True)
    await database["shapes"].create_index("parent", name="parent", sparse=True)


async def _index_integrations(database: Database) -> None:
    """By what integrations list their devices."""
    await database["devices"].create_index([("integration", 1), ("_id", 1)], name="integration")


async def _keep_decimal_places(database: Database) -> None:
    """Let the TSLs of custom entities say `fractionDigits`, which their entities always said."""
    said = {"integration": SYSTEM, "members.attribute.fraction_digits": {"$exists": True}}
    async for thing in database["things"].find(said):
        document = msgspec.json.decode(thing["tsl"], type=TslDocument)
        digits = {
            ".".join(filter(None, (thing["identifier"], member["path"]))): member["attribute"]
            for member in thing["members"]
        }
        params = [one for event in document.events for one in event.outputs]
        params += [one for service in document.services for one in service.inputs]
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
    """Replicas from before entities could be renamed name it when they count devices."""
    if "model" in await database["devices"].index_information():
        await database["devices"].drop_index("model")


async def _ignored_keys(database: Database) -> None:
    """Let documents stored before name values by their ids, as they did, until they come again.

    Their property keys were ignored; those that differ become the ids. A `ref` gets both places.
    """
    async for stored in database["tsls"].find({}):
        document = msgspec.json.decode(stored["document"], type=TslDocument)
        plain = with_keys_of_ids(document)
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
        plain = with_keys_of_ids(document)
        if plain is not document:
            same = {"_id": thing["_id"], "hash": thing["hash"]}
            await database["things"].update_one(same, {"$set": tsl_fields(plain)})


def _with_refs(document: TslDocument) -> TslDocument:
    for entry in entries_of(document):
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
