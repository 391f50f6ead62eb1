"""The management API on the wire: envelope, ids, pages, order."""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

import msgspec
from litestar.datastructures import ResponseHeader
from litestar.openapi.datastructures import ResponseSpec

from libs.common.clock import to_ms
from libs.common.envelope import ConsoleFailure
from libs.common.errors import InvalidInput, MalformedRequest
from libs.common.http.ids import Id
from libs.common.http.open_api import SENTENCES
from libs.common.http.operations import ConsoleOperation
from libs.common.http.streaming import Streamed

T = TypeVar("T")

LARGEST_PAGE = 100_000
"""Rows of a page; whoever asks for more gets so many, as consoles ask for 99999 or 999999 rows when
they want all."""
DEFAULT_PAGE = 10
MAX_SORTS = 8

Ids = Annotated[list[Id], msgspec.Meta(max_length=LARGEST_PAGE)]


def name_of(text: str, field: str = "name", most: int | None = None) -> str:
    """A name without the blanks around it; raise `MalformedRequest` or `InvalidInput`."""
    name = text.strip()
    if not name:
        raise MalformedRequest(f"{field} is empty", field=field)
    if most is not None and len(name) > most:
        raise InvalidInput(f"must have at most {most} characters", field=field)
    if not name.isprintable():
        raise InvalidInput("must not have control characters", field=field)
    return name


def ids_of(values: Sequence[int]) -> list[int]:
    """Return ids, each once, in the order they came."""
    return list(dict.fromkeys(values))


class Shown(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Base of what answers show: fields that are None by default are left out."""

    @classmethod
    def from_fields(cls, source: Any, **more: Any) -> Self:
        """Return what shows `source`: its attributes of the same names, and `more`.

        A time becomes its ms, and where text is shown, a number is written as decimal text.
        """
        kind: Any = type(source)
        shown = {
            name: _shown(getattr(source, name), is_text=is_text)
            for name, is_text in _fields_of(cls, kind)
            if name not in more
        }
        return cls(**shown, **more)


_TEXT = (str, str | None)


@cache
def _fields_of(kind: type[Shown], source: type) -> list[tuple[str, bool]]:
    """Return the fields that both have, and whether one of them is text."""
    there = {*dir(source), *getattr(source, "__struct_fields__", ())}
    return [
        (field.name, field.type in _TEXT)
        for field in msgspec.structs.fields(kind)
        if field.name in there
    ]


def _shown(value: Any, *, is_text: bool) -> Any:
    if isinstance(value, datetime):
        value = to_ms(value)
    return str(value) if is_text and isinstance(value, int) else value


class Page(msgspec.Struct, Generic[T], kw_only=True):
    """One page of a list; `total` counts all of them."""

    page_size: int
    page_number: int
    total: int
    content: list[T]


class Sort(msgspec.Struct):
    """One criterion: a property in snake_case or camelCase, `ASC` or `DESC` in any case."""

    property: str
    direction: Annotated[
        str, msgspec.Meta(extra_json_schema={"extra": {"enum": ["ASC", "DESC"]}})
    ] = "ASC"


class PageRequest(msgspec.Struct, kw_only=True):
    """Base of search bodies. Fields that are unknown are passed over, as clients send some."""

    largest: ClassVar[int] = LARGEST_PAGE
    """Rows of the largest page."""

    page_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    page_number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    """From 1."""
    sorts: Annotated[list[Sort], msgspec.Meta(max_length=MAX_SORTS)] | None = None

    def __post_init__(self) -> None:
        """Cut the size of the page to the largest one."""
        if self.page_size is not None:
            self.page_size = min(self.page_size, self.largest)

    @property
    def paged(self) -> bool:
        """Whether a page was asked for, and not the whole list."""
        return self.page_size is not None or self.page_number is not None

    @property
    def size(self) -> int:
        """Rows of the page."""
        return self.page_size or DEFAULT_PAGE

    @property
    def number(self) -> int:
        """Which page, from 1."""
        return self.page_number or 1

    @property
    def skip(self) -> int:
        """Rows before the page; none when the whole list is wanted."""
        return (self.number - 1) * self.size if self.paged else 0

    @property
    def limit(self) -> int:
        """Most rows of the answer, 0 for all of them (as MongoDB reads it)."""
        return self.size if self.paged else 0

    def order(
        self, columns: Mapping[str, str], default: Sequence[tuple[str, int]] = (("_id", -1),)
    ) -> list[tuple[str, int]]:
        """Stored fields with 1 or -1, ending in a unique `_id`.

        `columns` maps properties in snake_case to stored fields. Raises `InvalidInput` that
        names the criterion at fault.
        """
        order: dict[str, int] = {}
        for at, sort in enumerate(self.sorts or ()):
            column = columns.get(_snake(sort.property))
            if column is None:
                known = ", ".join(columns)
                raise InvalidInput(f"must be one of {known}", field=f"sorts[{at}].property")
            direction = {"asc": 1, "desc": -1}.get(sort.direction.lower())
            if direction is None:
                raise InvalidInput("must be ASC or DESC", field=f"sorts[{at}].direction")
            order.setdefault(column, direction)
        if not order:
            return list(default)
        order.setdefault("_id", -1)
        return list(order.items())

    def page(self, rows: Sequence[T], total: int) -> Page[T]:
        """`rows`, which are the page that was asked for, as the page that is answered."""
        return Page(
            page_size=self.size if self.paged else len(rows),
            page_number=self.number,
            total=total,
            content=list(rows),
        )

    def listed(self, rows: Sequence[T], total: int) -> list[T] | Page[T]:
        """The page when one was asked for, else the bare list."""
        return self.page(rows, total) if self.paged else list(rows)

    def streamed(self, rows: AsyncGenerator[T, None], total: int) -> Streamed[list[T] | Page[T]]:
        """Return `listed` of rows that are still to be read."""
        return Streamed(self.listed([], total), rows)

    def streamed_page(self, rows: AsyncGenerator[T, None], total: int) -> Streamed[Page[T]]:
        """Return the page of rows that are still to be read, whether one was asked for or not."""
        page: Page[T] = Page(page_size=self.size, page_number=self.number, total=total, content=[])
        return Streamed(page, rows)

    def cut(self, rows: Sequence[T]) -> list[T] | Page[T]:
        """Cut the page out of the whole list `rows`."""
        if not self.paged:
            return list(rows)
        return self.page(rows[self.skip : self.skip + self.size], len(rows))


def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower().lstrip("_")


CONSOLE_REFUSALS: dict[int, Any] = {
    status: ResponseSpec(
        data_container=ConsoleFailure,
        description=sentence.replace("errMsg", "detail_message").replace("requestId", "request_id"),
        generate_examples=False,
    )
    for status, sentence in SENTENCES.items()
}
"""The refusals that every operation of the management API documents."""

NOT_KEPT = [ResponseHeader(name="Cache-Control", value="no-store")]
"""The header of answers that hold secrets."""


route = partial(ConsoleOperation, responses=CONSOLE_REFUSALS, status_code=200)
"""An operation of the management API: whatever it does, a success is a 200."""
get = partial(route, http_method="GET")
post = partial(route, http_method="POST")
put = partial(route, http_method="PUT")
delete = partial(route, http_method="DELETE")
