"""A look through all connections of one server, page by page, with none left out."""

from dataclasses import dataclass

from services.device.reports.presence.connections import PAGE, SystemAccount, User

OVERLAP = 128
"""Rows of the page before that a page begins with."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """All connections of a server with a cid above `after`, and up to `until`."""

    after: int
    until: int | None
    """None: there are no more."""
    users: list[User]


class Look:
    """Walks along the connections of a server.

    Rows move to the front when those before them close, so a page must begin at or before
    the last cid that was seen; else it is asked for again from further in front. Those that
    move to the back, because a lower cid was let in late, are new and told by an event.
    """

    def __init__(self, account: SystemAccount, server: str) -> None:
        self._account = account
        self._server = server
        self._seen = 0
        self._position = 0
        self.ended = False

    async def next(self) -> Stretch:
        """The next stretch; `ended` tells whether it is the last."""
        offset = max(0, self._position - OVERLAP)
        page = await self._account.page(self._server, offset)
        while offset and (not page.number or page.first > self._seen):
            offset = max(0, offset - PAGE)
            page = await self._account.page(self._server, offset)
        after = self._seen
        self.ended = page.number < PAGE
        self._position = offset + page.number
        self._seen = max(after, page.last)
        users = [user for user in page.users if user.connection.cid > after]
        return Stretch(after, None if self.ended else self._seen, users)
