"""MongoDB: the clients of services, of the drivers motor and PyMongo (async).

Motor handles most operations, with PyMongo's interface and types (`_MotorCollection`). Frequent
reads and the writes of ingest use PyMongo's client (`Mongo.direct`): decision 0021.
Writes are `w=majority, j=true`, so acknowledged data survives a failover. Reads are from the
primary with `majority`: they exclude data that a primary being replaced has written and will lose.
Transactions read with `snapshot`, so their reads are as durable as their writes
(docs/decisions/0025). Driver errors are handled here and in stores, under the names `DuplicateKey`
and `BulkFailed`.
`to_document` and `read_document` convert between structs and documents.
"""

import asyncio
import itertools
import random
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import bson
import msgspec
from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from motor import motor_asyncio
from pymongo import AsyncMongoClient, ReadPreference, WriteConcern
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConnectionFailure,
    DuplicateKeyError,
    PyMongoError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern

from libs.common.errors import InvalidInput

R = TypeVar("R")

Document = dict[str, Any]
"""A document; the docstring of its store describes the fields."""
Database = AsyncDatabase[Document]
Collection = AsyncCollection[Document]
Aggregation = tuple[Collection, list[Document]]
"""A collection and the stages of an aggregation on it."""
Session = AsyncClientSession

DuplicateKey = DuplicateKeyError
BulkFailed = BulkWriteError
StoreUnavailable = ConnectionFailure
WriteNotAcknowledged = WriteConcernError
"""A write that a majority did not acknowledge, for example because the server stops."""
StoreError = PyMongoError

RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.005, 0.5
"""Seconds: maximum first pause and maximum pause between attempts of a transaction; pauses
double."""
_OPTIONS: dict[str, Any] = {
    "tz_aware": True,
    "maxPoolSize": 32,
    "serverSelectionTimeoutMS": 5000,
    "connectTimeoutMS": 3000,
    "heartbeatFrequencyMS": 5000,  # with the line above: a failed primary is detected after 8 s
    "retryWrites": True,
    "retryReads": True,
    "appname": "thingway",
}
BATCH_BYTES = 1024 * 1024
"""Target bytes of a batch of `read_rows`; more if documents suddenly become larger."""
SMALL_PAGE_BYTES = 128 * 1024
"""Expected bytes of a page that `read_page` reads and decodes as a whole."""
FIRST_BATCH, LARGEST_BATCH = 32, 1000
"""Documents of the first batch of `read_rows`, and the maximum of any batch."""
_DURABLE_WRITES = WriteConcern(w="majority", j=True)
DUPLICATE_KEY_CODE = 11000
"""MongoDB's error code for a duplicate key."""


@contextmanager
def raise_on_duplicate(error: Exception) -> Iterator[None]:
    """Raise `error` if a write in the block fails because of a duplicate key."""
    try:
        yield
    except DuplicateKey as duplicate:
        raise error from duplicate


def require_document(document: Document | None) -> Document:
    """Return a document that must exist, for example after an upsert."""
    if document is None:
        raise RuntimeError("MongoDB did not return the document that it wrote")
    return document


MAX_SEARCH_LENGTH = 1024
"""Maximum characters of a search text. MongoDB rejects patterns above 32 KiB, and escaping may
replace one character by four."""


def literal_pattern(text: str, field: str = "keyword") -> str:
    """Return a regular expression that matches `text` literally.

    MongoDB rejects patterns with NUL, but accepts its escape. Raises `InvalidInput` for the input
    `field` if the text exceeds `MAX_SEARCH_LENGTH`.
    """
    if len(text) > MAX_SEARCH_LENGTH:
        raise InvalidInput(f"must have at most {MAX_SEARCH_LENGTH} characters", field=field)
    return re.escape(text).replace("\0", r"\x00")


def build_text_condition(text: str, field: str = "keyword") -> dict[str, str]:
    """Return the condition "contains `text`", ignoring case; raise as `literal_pattern` does."""
    return {"$regex": literal_pattern(text, field), "$options": "i"}


def build_key_condition(keys: Sequence[bytes]) -> Document:
    """Return the condition that `_id` of a clustered collection is one of `keys`.

    The bounds `$gte` and `$lte` are redundant, but without them MongoDB 6 reads the whole
    collection instead of the range from the first to the last key. The keys should be close.
    """
    return {"$gte": min(keys), "$lte": max(keys), "$in": keys}


def build_page_stages(
    match: Document, order: Sequence[tuple[str, int]], skip: int = 0, limit: int = 0
) -> list[Document]:
    """Return the stages that find up to `limit` (0: all) documents after the first `skip`."""
    return [
        {"$match": match},
        {"$sort": dict(order)},
        *([{"$skip": skip}] if skip else []),
        *([{"$limit": limit}] if limit else []),
    ]


@dataclass(slots=True)
class MeanRowSize:
    """The mean size in bytes of the rows of a query, as last read; 0 if unknown."""

    mean: float = 0.0


async def read_rows(
    collection: Collection,
    stages: Sequence[Document],
    *,
    size: int = BATCH_BYTES,
    first: int = FIRST_BATCH,
    row_size: MeanRowSize | None = None,
    **options: Any,
) -> AsyncGenerator[Document, None]:
    """Yield the documents of an aggregation on a collection of `Mongo.direct`.

    MongoDB limits a batch by its number of documents. The first has `first` documents; the limit of
    the next ones follows from the mean size, so that a batch has about `size` bytes. Each document
    is decoded when it is yielded. `row_size` is set to the mean size of the documents.
    """
    raw = collection.with_options(codec_options=CodecOptions(document_class=RawBSONDocument))
    read, rows = 0, row_size or MeanRowSize()
    async with await raw.aggregate(list(stages), batchSize=first, **options) as cursor:
        async for document in cursor:
            read += 1
            rows.mean += (len(document.raw) - rows.mean) / min(read, FIRST_BATCH)
            cursor.batch_size(max(1, min(LARGEST_BATCH, 4 * read, int(size / rows.mean))))
            yield bson.decode(document.raw, collection.codec_options)


async def read_page(
    collection: Collection, stages: Sequence[Document], limit: int, row_size: MeanRowSize
) -> AsyncGenerator[list[Document], None]:
    """Yield the documents of `read_rows` in lists of one or more.

    `limit` is the maximum number of documents that `stages` return. A page that probably is small
    is read in one batch, and decoded as a whole.
    """
    if not 0 < row_size.mean * limit <= SMALL_PAGE_BYTES:
        async for row in read_rows(collection, stages, row_size=row_size):
            yield [row]
        return
    raw = collection.with_options(codec_options=CodecOptions(document_class=RawBSONDocument))
    async with await raw.aggregate(list(stages), batchSize=limit + 1) as cursor:
        content = b"".join([document.raw for document in await cursor.to_list()])
    if rows := bson.decode_all(content, collection.codec_options):
        row_size.mean = len(content) / len(rows)
        yield rows


async def find_page(
    collection: Collection,
    query: Document,
    order: Sequence[tuple[str, int]],
    skip: int,
    limit: int,
    fields: Mapping[str, int] | None = None,
) -> tuple[list[Document], int]:
    """Return a page of the matching documents (all with `limit` 0), and their number."""
    page = collection.find(query, fields, sort=order, skip=skip, limit=limit)
    return await asyncio.gather(page.to_list(None), collection.count_documents(query))


async def list_distinct_values(
    collection: Collection, field: str, query: Document, index: str | None = None
) -> list[str]:
    """Return the distinct texts of `field` in matching documents, except empty ones.

    Each costs one seek in `index`. `distinct` reads all matching documents, unless MongoDB chooses
    this index.
    """
    texts = [""]
    while row := await collection.find_one(
        {**query, field: {"$gt": texts[-1]}}, {field: 1}, sort=[(field, 1)], hint=index
    ):
        texts.append(row[field])
    return texts[1:]


class _PlainIntegers(TypeDecoder):
    """Decodes 64-bit integers as `int`, because msgspec cannot encode subclasses."""

    bson_type = Int64

    def transform_bson(self, value: Int64) -> int:
        return int(value)


_MOTOR: Any = motor_asyncio
"""Untyped, because collections and databases have a different interface here."""


class _MotorCollection(_MOTOR.AsyncIOMotorCollection):  # type: ignore[misc]
    """Motor's collection with PyMongo's interface for aggregations: the cursor is awaited."""

    async def aggregate(self, *arguments: Any, **options: Any) -> Any:
        """Return the cursor."""
        return super().aggregate(*arguments, **options)

    async def find_one_and_update(self, *arguments: Any, **options: Any) -> Any:
        """Update and return a document."""
        return await _find_and_modify(super().find_one_and_update(*arguments, **options))

    async def find_one_and_delete(self, *arguments: Any, **options: Any) -> Any:
        """Delete and return a document."""
        return await _find_and_modify(super().find_one_and_delete(*arguments, **options))


async def _find_and_modify(answer: Awaitable[Any]) -> Any:
    """Return the answer; raise `StoreUnavailable` if a majority did not acknowledge the write.

    PyMongo 4.20 fails to raise the error that a stopping server sends: it adds labels to a document
    that custom decoders leave undecoded (`_check_command_response`).
    """
    try:
        return await answer
    except AttributeError as error:
        if not isinstance(error.obj, RawBSONDocument):
            raise
        raise AutoReconnect("MongoDB stops: a majority did not acknowledge a write") from error


class _MotorDatabase(_MOTOR.AsyncIOMotorDatabase):  # type: ignore[misc]
    """Motor's database: it has `_MotorCollection`s, and its `aggregate` is awaited."""

    def __getitem__(self, name: str) -> _MotorCollection:
        return _MotorCollection(self, name)

    async def aggregate(self, *arguments: Any, **options: Any) -> Any:
        """Return the cursor."""
        return super().aggregate(*arguments, **options)


class Mongo:
    """The MongoDB clients of a process, and its database."""

    def __init__(self, url: str, database: str) -> None:
        self.client: Any = _MOTOR.AsyncIOMotorClient(url, **_OPTIONS)
        self._direct: AsyncMongoClient[Document] = AsyncMongoClient(url, **_OPTIONS)
        codec: CodecOptions[Document] = CodecOptions(
            tz_aware=True, tzinfo=UTC, type_registry=TypeRegistry([_PlainIntegers()])
        )
        settings: dict[str, Any] = {
            "codec_options": codec,
            "read_preference": ReadPreference.PRIMARY,
            "read_concern": ReadConcern("majority"),
            "write_concern": _DURABLE_WRITES,
        }
        self.database = cast("Database", _MotorDatabase(self.client, database, **settings))
        self.direct: Database = self._direct.get_database(database, **settings)
        """The same database for frequent reads and for ingest, without a thread."""

    def get_session_database(self, session: Session) -> Database:
        """Return the database over the client that began `session`."""
        return self.direct if isinstance(session, AsyncClientSession) else self.database

    async def ping(self) -> None:
        """Raise an error unless the database answers and accepts writes."""
        hello = await self.database.command("hello")
        if not hello.get("isWritablePrimary"):
            raise ConnectionFailure("MongoDB has no writable primary yet")

    async def transaction(
        self, callback: Callable[[Session], Awaitable[R]], *, direct: bool = False
    ) -> R:
        """Run `callback(session)` in a transaction, repeatedly after conflicts.

        With `direct`, its operations use collections of `direct`. Retries pause: the driver would
        retry immediately, and occupy a processor while a record is locked.
        """
        tries = itertools.count()

        async def with_pauses(session: Session) -> R:
            if tried := next(tries):
                longest = min(2 ** (tried - 1) * RETRY_SECONDS, LONGEST_RETRY_SECONDS)
                await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - a pause
            return await callback(session)

        begun = self._direct.start_session() if direct else await self.client.start_session()
        async with begun as session:
            done = await session.with_transaction(
                with_pauses, read_concern=ReadConcern("snapshot"), write_concern=_DURABLE_WRITES
            )
            return cast("R", done)

    async def run_in_snapshot(self, callback: Callable[[Session], Awaitable[R]]) -> R:
        """Run `callback(session)`, whose reads over `direct` see a single snapshot.

        It is a transaction: MongoDB may discard the state that a snapshot session reads.
        """
        return await self.transaction(callback, direct=True)

    async def close(self) -> None:
        """Close all connections."""
        self.client.close()
        await self._direct.close()


async def list_ids_in_turns(
    collection: Collection, query: Document, order: str, maximum: int
) -> list[Any]:
    """Return `_id` of up to `maximum` documents, in turns of tenants, each sorted by `order`."""
    first = {"partitionBy": "$tenant", "sortBy": {order: 1}}
    stages: list[Document] = [
        {"$match": query},
        {"$project": {"tenant": 1, order: 1}},
        {"$setWindowFields": {**first, "output": {"turn": {"$documentNumber": {}}}}},
        {"$sort": {"turn": 1, order: 1}},
        {"$limit": maximum},
    ]
    return [found["_id"] async for found in await collection.aggregate(stages)]


def _stored_name(name: str) -> str:
    if name == "id":
        return "_id"
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class Stored(msgspec.Struct, frozen=True, rename=_stored_name):
    """Base of stored documents: `id` becomes `_id`, other fields camel case.

    Times are `datetime` in UTC, as in MongoDB.
    """


S = TypeVar("S", bound=Stored)


def to_document(stored: Stored) -> Document:
    """Return the document of a struct; of a struct of changes, the fields to set."""
    document: Document = msgspec.to_builtins(stored, builtin_types=(bytes, datetime))
    return document


def read_document(document: Document | None, kind: type[S]) -> S | None:
    """Return the struct of a document, or None without one; unknown fields are ignored."""
    return None if document is None else msgspec.convert(document, kind)
