"""Documents of MongoDB as structs.

A store that keeps a struct as it is needs no conversion of its own: `read_document` and
`to_document` are each other's reverse.
"""

from datetime import datetime
from typing import TypeVar

import msgspec

from libs.common.store.mongo import Document


def _stored_name(name: str) -> str:
    if name == "id":
        return "_id"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class Stored(msgspec.Struct, frozen=True, rename=_stored_name):
    """Base of what is a document: its `id` is `_id`, other fields are in camel case.

    Times are `datetime` in UTC, as MongoDB has them.
    """


S = TypeVar("S", bound=Stored)


def to_document(stored: Stored) -> Document:
    """Return the document of a struct; of changes, the fields to set."""
    document: Document = msgspec.to_builtins(stored, builtin_types=(bytes, datetime))
    return document


def read_document(document: Document | None, kind: type[S]) -> S | None:
    """Return the struct of a document, None for None; fields that it does not have are left out."""
    return None if document is None else msgspec.convert(document, kind)
