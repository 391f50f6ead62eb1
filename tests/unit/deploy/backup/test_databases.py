"""Backups contain no write-only values."""

import bson
import pytest

from deploy.backup.databases import COLLECTIONS_WITH_WRITE_ONLY, COMMANDS, remove_write_only_values
from deploy.backup.databases import OPENAPI_COMMANDS as OPENAPI_COMMANDS_NAME
from deploy.backup.databases import OUTBOX as OUTBOX_NAME
from deploy.backup.stores import DATABASES

OPEN = {
    "_id": 5,
    "payload": {"properties": {"interval": 5}},
    "sealed": {"properties": {"interval": 5, "pin": "s3cret"}},
    "writeOnly": ["pin"],
    "downlinks": [{"port": 85, "data": b"s3cret"}],
}
OUTBOX = {
    "_id": 1,
    "entries": [
        {"subject": "a", "payload": b"s3cret", "key": "command-5"},
        {"subject": "b", "payload": b"plain"},
    ],
}
OPENAPI_COMMAND = {"_id": 5, "carried": '{"command":{"properties":{"pin":"s3cret"}}}'}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (COMMANDS, OPEN),
        (OUTBOX_NAME, OUTBOX),
        (OPENAPI_COMMANDS_NAME, OPENAPI_COMMAND),
    ],
)
def test_write_only_values_are_left_out(name, document):
    kept = b"".join(remove_write_only_values(name, [bson.encode(document)]))

    assert b"s3cret" not in kept


def test_a_command_keeps_the_names_of_removed_values():
    (command,) = map(bson.decode, remove_write_only_values(COMMANDS, [bson.encode(OPEN)]))
    (outbox,) = map(bson.decode, remove_write_only_values(OUTBOX_NAME, [bson.encode(OUTBOX)]))

    assert (command["writeOnly"], command["payload"]) == (["pin"], OPEN["payload"])
    assert outbox["entries"][1] == OUTBOX["entries"][1]
    assert outbox["entries"][0]["withdrawn"] is True


def test_documents_without_secrets_are_not_changed():
    raw = bson.encode({"_id": 6, "payload": {"properties": {"interval": 5}}})

    assert list(remove_write_only_values(COMMANDS, [raw])) == [raw]


def test_collections_with_secrets_exist_in_our_databases():
    assert {name.partition(".")[0] for name in COLLECTIONS_WITH_WRITE_ONLY} <= set(DATABASES)
