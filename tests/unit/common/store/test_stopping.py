"""Answers of a server that stops."""

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.errors import WriteConcernError
from pymongo.helpers_shared import _check_command_response
from pymongo.synchronous.collection import Collection

from libs.common.http.failures import as_thingway_error
from libs.common.store.mongo import Mongo, StoreUnavailable

STOPPING = {
    "ok": 1,
    "writeConcernError": {"code": 91, "errmsg": "Replication is being shut down"},
    "errorLabels": ["RetryableWriteError"],
}


@pytest.mark.parametrize(
    ("operation", "update"),
    [("find_one_and_update", [{"$set": {"a": 1}}]), ("find_one_and_delete", [])],
)
async def test_a_write_without_a_majority_is_a_store_error(
    operation: str, update: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyMongo raises AttributeError, which would end the job and its process."""

    def answer(*_: Any, **__: Any) -> None:
        fields = RawBSONDocument(bson.encode(STOPPING))
        _check_command_response(fields, None, parse_write_concern_error=True)

    monkeypatch.setattr(Collection, "_find_and_modify", answer)
    mongo = Mongo("mongodb://127.0.0.1:1", "thingway_test")
    try:
        with pytest.raises(StoreUnavailable, match="majority"):
            await getattr(mongo.database["leases"], operation)({}, *update)
    finally:
        await mongo.close()


def test_a_request_during_a_stop_is_503() -> None:
    """The client may repeat it; 500 would be a fault of ours."""
    error = WriteConcernError("Replication is being shut down", 91)
    assert as_thingway_error(error, "/user").status == 503
