"""Changes that decoding frames again causes, before they are written."""

from typing import Any

import pytest

from libs.common.tsl import Fault
from services.device.lorawan.codec_cache import CachedCodec
from services.device.lorawan.codec_scripts import DecodeResult
from services.device.lorawan.redecode_changes import HistoryChanges, has_one_accepted_record
from services.device.lorawan.redecoder import Redecoder
from services.device.telemetry.batch import PastReading
from tests.unit.device.things.examples import thing

ACCEPTED = DecodeResult({"interval": 1}, [], [])
PARTLY = DecodeResult({"interval": 1}, [], [Fault("battery", "is no number")])


def test_equal_frames_get_the_new_versions_in_one_update() -> None:
    """So they are not decoded again; a frame with a new fault gets an update of its own."""
    changes = HistoryChanges(thing(), "versions")
    changes.add_frames_to_overwrite([({"_id": b"1"}, ACCEPTED), ({"_id": b"2"}, PARTLY)])
    changes.add_frame_update(b"3", ACCEPTED, set(), same=True)
    faulty, equal = changes.frame_updates()
    assert faulty._filter == {"_id": b"2"}
    assert faulty._doc["$set"] == {"c": "versions", "w": PARTLY.rejection_reason}
    assert equal._filter["_id"]["$in"] == [b"1", b"3"]
    assert equal._doc == {"$set": {"c": "versions"}}
    assert changes.overwritten == {b"1": {"interval": 1}, b"2": {"interval": 1}}


@pytest.mark.parametrize(
    ("row", "result", "plain"),
    [
        ({}, ACCEPTED, True),
        ({}, PARTLY, True),
        ({}, DecodeResult({}, [], []), False),
        ({}, DecodeResult({"interval": 1}, [PastReading(1, {"interval": 2})], []), False),
        ({"h": [b"1"]}, ACCEPTED, False),
        ({"w": "a fault"}, ACCEPTED, False),
    ],
)
def test_only_frames_with_one_record_are_overwritten_without_reading(
    row: dict[str, Any], result: DecodeResult, plain: bool
) -> None:
    """Past readings and faults that are stored must be compared first."""
    assert has_one_accepted_record(row, result) is plain


async def test_frames_of_a_product_without_a_codec_are_not_decoded() -> None:
    """Its job ends with this error."""
    nothing: Any = None
    redecoder = Redecoder(
        mongo=nothing,
        frames=nothing,
        partitions=nothing,
        workers=nothing,
        outbox=nothing,
        retention_ms=1,
    )
    with pytest.raises(LookupError):
        await redecoder._decode_frames(CachedCodec(None), "default", [])
