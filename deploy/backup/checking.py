"""Whether an archive is what it says it is."""

from collections.abc import Iterable, Iterator
from typing import Self

from deploy.backup.archive import ArchiveBroken
from deploy.backup.databases import Tally, split
from deploy.backup.records import (
    FORMAT,
    CollectionEnd,
    CollectionHead,
    Documents,
    End,
    Head,
    Moment,
    Record,
)


class Checked:
    """The records of an archive; what it says of itself stands here behind the last."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = self._checked(records)
        self._head: Head | None = None
        self._moment: Moment | None = None
        self.collections: dict[tuple[str, str], CollectionEnd] = {}

    @property
    def head(self) -> Head:
        """What this is a backup of."""
        if self._head is None:
            raise ArchiveBroken("the archive does not say what it is")
        return self._head

    @property
    def moment(self) -> Moment:
        """What the backup is of; raises `ArchiveBroken` when it does not say so."""
        if self._moment is None:
            raise ArchiveBroken("the archive does not say of which moment it is")
        return self._moment

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
        """The next record; raises `ArchiveBroken` for what is not as it was written."""
        return next(self._records)

    def _checked(self, records: Iterable[Record]) -> Iterator[Record]:
        collection, tally, ended = ("", ""), Tally(), False
        for record in records:
            match record:
                case Head():
                    self._head = record
                    if record.format != FORMAT:
                        raise ArchiveBroken(f"the archive was made by version {record.version}")
                case CollectionHead():
                    collection, tally = (record.database, record.name), Tally()
                case Documents():
                    for document in split(record.data):
                        tally.add(document)
                case CollectionEnd():
                    if record != tally.end:
                        raise ArchiveBroken(f"{'.'.join(collection)} is not as it was written")
                    self.collections[collection] = record
                case Moment():
                    self._moment = record
                case End():
                    ended = record.collections == len(self.collections)
                case _:
                    pass
            yield record
        if not ended or self._head is None:
            raise ArchiveBroken("the archive lacks collections")
