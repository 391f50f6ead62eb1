"""Requests and answers of the management API: envelope, ids, pages, order."""

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
from libs.common.http.open_api import ERROR_DESCRIPTION_BY_STATUS
from libs.common.http.operations import ConsoleOperation
from libs.common.http.streaming import StreamedAnswer

T = TypeVar("T")

MAX_PAGE_ROWS = 100_000
"""Maximum rows of a page, to which greater sizes are reduced: consoles request 99999 or 999999 rows
to get all."""
DEFAULT_PAGE_ROWS = 10
MAX_SORTS = 8

Ids = Annotated[list[Id], msgspec.Meta(max_length=MAX_PAGE_ROWS)]


def parse_name(text: str, field: str = "name", maximum: int | None = None) -> str:
    """Return a name without surrounding blanks.

    Raises `MalformedRequest` for an empty name, and `InvalidInput` for an invalid or longer one.
    """
    name = text.strip()
    if not name:
        raise MalformedRequest(f"{field} is empty", field=field)
    if maximum is not None and len(name) > maximum:
        raise InvalidInput(f"must have at most {maximum} characters", field=field)
    if not name.isprintable():
        raise InvalidInput("must not have control characters", field=field)
    return name


def name_constraint(maximum: int) -> msgspec.Meta:
    """Return the rule of a name: not all blank, and at most `maximum` characters."""
    return msgspec.Meta(
        min_length=1,
        max_length=maximum,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$",
        description=f"1 to {maximum} characters, not all blank, none a control character",
    )


def distinct_ids(values: Sequence[int]) -> list[int]:
    """Return distinct ids in their order."""
    return list(dict.fromkeys(values))


class ResponseModel(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Base of answers: fields with their default value, such as None, are omitted."""

    @classmethod
    def from_fields(cls, source: Any, **more: Any) -> Self:
        """Return an answer from the attributes of `source` with equal names, and `more`.

        A time is converted to ms. In a text field, a number is converted to decimal text.
        """
        kind: Any = type(source)
        values = {
            name: _response_value(getattr(source, name), is_text=is_text)
            for name, is_text in _shared_fields(cls, kind)
            if name not in more
        }
        return cls(**values, **more)


_TEXT_TYPES = (str, str | None)


@cache
def _shared_fields(kind: type[ResponseModel], source: type) -> list[tuple[str, bool]]:
    """Return the common fields, and whether each is a text field."""
    source_names = {*dir(source), *getattr(source, "__struct_fields__", ())}
    return [
        (field.name, field.type in _TEXT_TYPES)
        for field in msgspec.structs.fields(kind)
        if field.name in source_names
    ]


def _response_value(value: Any, *, is_text: bool) -> Any:
    if isinstance(value, datetime):
        value = to_ms(value)
    return str(value) if is_text and isinstance(value, int) else value


class Page(msgspec.Struct, Generic[T], kw_only=True):
    """A page of a list; `total` counts all rows."""

    page_size: int
    page_number: int
    total: int
    content: list[T]


class Sort(msgspec.Struct):
    """A sort criterion: a property in snake_case or camelCase, `ASC` or `DESC` in any case."""

    property: str
    """Field to sort by, for example `created_at`."""
    direction: Annotated[
        str, msgspec.Meta(extra_json_schema={"extra": {"enum": ["ASC", "DESC"]}})
    ] = "ASC"
    """`ASC` (ascending) or `DESC` (descending)."""


class PageRequest(msgspec.Struct, kw_only=True):
    """Base of search bodies. Unknown fields are ignored, because clients send such fields."""

    largest: ClassVar[int] = MAX_PAGE_ROWS
    """Maximum rows of a page."""

    page_size: Annotated[int, msgspec.Meta(ge=1)] | None = None
    page_number: Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000)] | None = None
    """Starts at 1."""
    sorts: Annotated[list[Sort], msgspec.Meta(max_length=MAX_SORTS)] | None = None

    def __post_init__(self) -> None:
        """Reduce the size of the page to the largest one."""
        if self.page_size is not None:
            self.page_size = min(self.page_size, self.largest)

    @property
    def is_paged(self) -> bool:
        """Return whether a page was requested, and not the whole list."""
        return self.page_size is not None or self.page_number is not None

    @property
    def size(self) -> int:
        """Return the maximum number of rows of the page."""
        return self.page_size or DEFAULT_PAGE_ROWS

    @property
    def number(self) -> int:
        """Return the number of the page, from 1."""
        return self.page_number or 1

    @property
    def skip(self) -> int:
        """Return the number of rows before the page; 0 for the whole list."""
        return (self.number - 1) * self.size if self.is_paged else 0

    @property
    def limit(self) -> int:
        """Return the maximum rows of the answer; 0 for all, as in MongoDB."""
        return self.size if self.is_paged else 0

    def order(
        self, columns: Mapping[str, str], default: Sequence[tuple[str, int]] = (("_id", -1),)
    ) -> list[tuple[str, int]]:
        """Return the requested order as stored fields with 1 or -1, or `default` without a request.

        A requested order ends with `_id`, which is unique. `columns` maps properties in snake_case
        to stored fields. Raises `InvalidInput` with the invalid criterion.
        """
        order: dict[str, int] = {}
        for at, sort in enumerate(self.sorts or ()):
            column = columns.get(_to_snake_case(sort.property))
            if column is None:
                sortable = ", ".join(columns)
                raise InvalidInput(f"must be one of {sortable}", field=f"sorts[{at}].property")
            direction = {"asc": 1, "desc": -1}.get(sort.direction.lower())
            if direction is None:
                raise InvalidInput("must be ASC or DESC", field=f"sorts[{at}].direction")
            order.setdefault(column, direction)
        if not order:
            return list(default)
        order.setdefault("_id", -1)
        return list(order.items())

    def page(self, rows: Sequence[T], total: int) -> Page[T]:
        """Return the answer for `rows`, which are the requested page."""
        return Page(
            page_size=self.size if self.is_paged else len(rows),
            page_number=self.number,
            total=total,
            content=list(rows),
        )

    def listed(self, rows: Sequence[T], total: int) -> list[T] | Page[T]:
        """Return the page if one was requested, else the plain list."""
        return self.page(rows, total) if self.is_paged else list(rows)

    def streamed(
        self, rows: AsyncGenerator[T, None], total: int
    ) -> StreamedAnswer[list[T] | Page[T]]:
        """Return the answer of `listed` for rows that are read while it is sent."""
        return StreamedAnswer(self.listed([], total), rows)

    def streamed_page(self, rows: AsyncGenerator[T, None], total: int) -> StreamedAnswer[Page[T]]:
        """Return a page, even if none was requested, of rows that are read while it is sent."""
        page: Page[T] = Page(page_size=self.size, page_number=self.number, total=total, content=[])
        return StreamedAnswer(page, rows)

    def select_page(self, rows: Sequence[T]) -> list[T] | Page[T]:
        """Return the requested page of the whole list `rows`."""
        if not self.is_paged:
            return list(rows)
        return self.page(rows[self.skip : self.skip + self.size], len(rows))


def _to_snake_case(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower().lstrip("_")


CONSOLE_ERROR_RESPONSES: dict[int, Any] = {
    status: ResponseSpec(
        data_container=ConsoleFailure,
        description=sentence.replace("errMsg", "detail_message").replace("requestId", "request_id"),
        generate_examples=False,
    )
    for status, sentence in ERROR_DESCRIPTION_BY_STATUS.items()
}
"""The errors that every operation of the management API documents."""

NO_STORE_HEADERS = [ResponseHeader(name="Cache-Control", value="no-store")]
"""The headers of answers with secrets."""


route = partial(ConsoleOperation, responses=CONSOLE_ERROR_RESPONSES, status_code=200)
"""An operation of the management API, which answers every success with 200."""
get = partial(route, http_method="GET")
post = partial(route, http_method="POST")
put = partial(route, http_method="PUT")
delete = partial(route, http_method="DELETE")
