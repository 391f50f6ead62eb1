"""Structs that are documents of MongoDB."""

from datetime import UTC, datetime

import msgspec
import pytest

from libs.common.errors import Conflict
from libs.common.store.mongo import (
    DuplicateKey,
    Stored,
    raise_on_duplicate,
    read_document,
    to_document,
)


class Kept(Stored, frozen=True, kw_only=True):
    id: int
    attach_id: int | None = None
    content: bytes = b""
    created_at: datetime
    remark: str | msgspec.UnsetType = msgspec.UNSET


NOW = datetime(2026, 5, 1, tzinfo=UTC)
DOCUMENT = {"_id": 7, "attachId": 8, "content": b"\x00", "createdAt": NOW}


def test_a_struct_is_a_document_in_camel_case():
    """Its id is `_id`; times and bytes stay what MongoDB stores; what is not set is left out."""
    kept = Kept(id=7, attach_id=8, content=b"\x00", created_at=NOW)
    assert to_document(kept) == DOCUMENT


def test_a_document_is_read_as_it_was_written():
    """Fields that the struct does not have are passed over; no document is no struct."""
    kept = read_document(DOCUMENT | {"other": 1}, Kept)
    assert kept is not None
    assert to_document(kept) == DOCUMENT
    assert read_document(None, Kept) is None


def test_a_duplicate_key_becomes_the_error_of_the_caller() -> None:
    """With the driver's error as its cause; other errors pass."""
    with (
        pytest.raises(Conflict, match="exists already") as raised,
        raise_on_duplicate(Conflict("exists already", field="name")),
    ):
        raise DuplicateKey("E11000")
    assert isinstance(raised.value.__cause__, DuplicateKey)
    with pytest.raises(KeyError), raise_on_duplicate(Conflict("exists already", field="name")):
        raise KeyError
