"""Backups hold no write-only values."""

import bson
import pytest

from deploy.backup.databases import CARRIED as CARRIED_NAME
from deploy.backup.databases import COMMANDS, CONCEALED, conceal
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
CARRIED = {"_id": 5, "carried": '{"command":{"properties":{"pin":"s3cret"}}}'}


@pytest.mark.parametrize(
    ("name", "document"),
    [
        (COMMANDS, OPEN),
        (OUTBOX_NAME, OUTBOX),
        (CARRIED_NAME, CARRIED),
    ],
)
def test_write_only_values_are_left_out(name, document):
    kept = b"".join(conceal(name, [bson.encode(document)]))

    assert b"s3cret" not in kept


def test_a_command_knows_what_it_lacks_and_the_rest_is_as_it_was():
    (command,) = map(bson.decode, conceal(COMMANDS, [bson.encode(OPEN)]))
    (outbox,) = map(bson.decode, conceal(OUTBOX_NAME, [bson.encode(OUTBOX)]))

    assert (command["writeOnly"], command["payload"]) == (["pin"], OPEN["payload"])
    assert outbox["entries"][1] == OUTBOX["entries"][1]
    assert outbox["entries"][0]["withdrawn"] is True


def test_documents_without_secrets_are_copied_byte_by_byte():
    raw = bson.encode({"_id": 6, "payload": {"properties": {"interval": 5}}})

    assert list(conceal(COMMANDS, [raw])) == [raw]


def test_the_collections_are_of_our_databases():
    assert {name.partition(".")[0] for name in CONCEALED} <= set(DATABASES)
