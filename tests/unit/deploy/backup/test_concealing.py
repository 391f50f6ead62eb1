"""Backups hold no write-only values."""

import bson
import pytest

from deploy.backup.concealing import conceal

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
        ("device.commands", OPEN),
        ("device.outbox", OUTBOX),
        ("management.openapi_commands", CARRIED),
    ],
)
def test_write_only_values_are_left_out(name, document):
    kept = b"".join(conceal(name, [bson.encode(document)]))

    assert b"s3cret" not in kept


def test_a_command_knows_what_it_lacks_and_the_rest_is_as_it_was():
    (command,) = map(bson.decode, conceal("device.commands", [bson.encode(OPEN)]))
    (outbox,) = map(bson.decode, conceal("device.outbox", [bson.encode(OUTBOX)]))

    assert (command["writeOnly"], command["payload"]) == (["pin"], OPEN["payload"])
    assert outbox["entries"][1] == OUTBOX["entries"][1]
    assert outbox["entries"][0]["withdrawn"] is True


def test_documents_without_secrets_are_copied_byte_by_byte():
    raw = bson.encode({"_id": 6, "payload": {"properties": {"interval": 5}}})

    assert list(conceal("device.commands", [raw])) == [raw]
