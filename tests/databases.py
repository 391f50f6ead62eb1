"""Databases that tests share one after the other: the indexes of a service take longer than a test.

A test writes to few of the hundred collections of a service, and only those are emptied for the
next one. Commands of this process are watched for that, so no other process may write to them.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from pymongo import MongoClient, monitoring

from libs.common.store.mongo import Database

_WRITES = frozenset({"insert", "update", "findAndModify", "create"})
_MIGRATIONS = "migrations"
KEPT = frozenset({"counters", "leases"})
"""Collections of a service that still runs."""
HISTORY = "history_"
PROFILE = "system.profile"
"""What MongoDB's profiler wrote for a test; it cannot be emptied, only dropped."""


class WrittenCollections(monitoring.CommandListener):
    """Records which collections the clients of this process write to."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = defaultdict(set)

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Record the collection of a command that writes documents."""
        if event.command_name in _WRITES:
            self._names[event.database_name].add(event.command[event.command_name])
        elif event.command_name == "aggregate":
            self._record_target(event.database_name, event.command["pipeline"])
        elif event.command_name == "profile":
            self._names[event.database_name].add(PROFILE)

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Do nothing: the command was recorded when it was sent."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Do nothing: the command was recorded when it was sent."""

    def names(self, database: str) -> set[str]:
        """Return the collections of a database that were written to since it was emptied."""
        return self._names[database] - {_MIGRATIONS}

    def forget(self, database: str) -> None:
        """Forget what was written to a database: it is being emptied."""
        self._names.pop(database, None)

    def _record_target(self, database: str, pipeline: list[Mapping[str, Any]]) -> None:
        if pipeline and (merge := pipeline[-1].get("$merge")):
            self._names[database].add(merge["into"])


WRITTEN = WrittenCollections()
monitoring.register(WRITTEN)


async def empty_documents(database: Database) -> None:
    """Delete the documents of a database that a service still uses, without migrations and ids."""
    for name in WRITTEN.names(database.name) - KEPT - {PROFILE}:
        await database[name].delete_many({})


async def read_documents(database: Database) -> dict[str, list[Any]]:
    """Return the documents that `empty_documents` would delete, by collection."""
    found = {
        name: await database[name].find().to_list(None) for name in WRITTEN.names(database.name)
    }
    return {name: some for name, some in found.items() if some and name not in KEPT}


def empty(client: MongoClient[dict[str, Any]], database: str) -> None:
    """Delete all documents of a database but the record of its migrations."""
    names = WRITTEN.names(database)
    WRITTEN.forget(database)
    for name in names:
        if name.startswith(HISTORY) or name == PROFILE:
            client[database].drop_collection(name)
        else:
            client[database][name].delete_many({})
