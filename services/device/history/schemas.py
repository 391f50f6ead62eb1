"""What history answers (specification, "Property history record")."""

from typing import Any

import msgspec


class HistoryRecord(msgspec.Struct):
    """Values reported together; `ts` in ms."""

    ts: int
    properties: dict[str, Any]


class HistoryPage(msgspec.Struct, rename="camel", omit_defaults=True):
    """A page; `nextPageKey` is absent on the last one."""

    list: list[HistoryRecord]
    page_size: int
    next_page_key: str | None = None
