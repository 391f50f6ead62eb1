"""Tenants' collections: how to find their documents, and which ids these contain.

`tenant_collections.toml` lists them. A test reads a running platform and fails for a collection
that is missing there.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from deploy.backup import relocation
from deploy.backup.relocation import Document, Relocation


class Lookup(Enum):
    """Ways to find a tenant's documents that have no tenant field."""

    THING = "id of a device or custom entity"
    THING_PREFIX = "key that starts with the id of a device or custom entity (decision 0001)"
    SERIAL = "SNs of the tenant's devices and RPS records"
    SHAPE = "shapes of the tenant's devices, and their parents"


@dataclass(frozen=True)
class Row:
    """A row of `TENANT_COLLECTIONS`: one collection with documents of tenants."""

    name: str
    """`{service}.{collection}`; `history_*` means the collections of all weeks."""
    lookup: str | Lookup = "tenant"
    """The field that names the tenant, or another way to find its documents."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Id sequence of each field that holds ids."""
    rewrite: Callable[[Document, Relocation], None] | None = None
    """Rewrites a document further than a shift of `ids`."""
    shared: bool = False
    """Whether documents that the target already has are equal."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of the matching collection names."""
        return re.compile(re.escape(self.name).replace(r"\*", r"\d+"))


def _read_row(name: str, settings: dict[str, Any]) -> Row:
    row = Row(name, **settings)
    lookup = Lookup.__members__.get(str(row.lookup), row.lookup)
    rewrite = getattr(relocation, f"rewrite_{row.rewrite}") if row.rewrite else None
    return replace(row, lookup=lookup, rewrite=rewrite)


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
TENANT_COLLECTIONS = tuple(_read_row(*row) for row in _TABLE["tenants"].items())
EXCLUDED: dict[str, str] = _TABLE["excluded"]
"""Collections that a tenant's archive leaves out, and why."""


def find_collection(name: str) -> Row | None:
    """Return the entry of `{service}.{collection}`; None if it does not move."""
    return next((each for each in TENANT_COLLECTIONS if each.pattern.fullmatch(name)), None)
