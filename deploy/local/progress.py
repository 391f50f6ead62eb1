"""Show how a start goes: a live table on a terminal, plain lines elsewhere."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

_REFRESH_SECONDS = 0.1
_STYLES = {"starting": "yellow", "ready": "green", "failed": "red"}


@dataclass
class _Row:
    state: str = "starting"
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started


class Progress:
    """The rows of one start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, _Row] = {}

    def say(self, line: str) -> None:
        """Print a line; above the table while there is one. A closed terminal is no fault."""
        with contextlib.suppress(OSError):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Keep the table on the terminal up to date inside the block."""
        if not self._console.is_terminal:
            yield
            return
        with Live(self._table(), console=self._console, auto_refresh=False) as live:
            refresh = asyncio.create_task(self._refresh(live))
            try:
                yield
            finally:
                refresh.cancel()
                live.update(self._table(), refresh=True)

    async def follow(self, name: str, waiting: Awaitable[None]) -> None:
        """Show `name` as starting until `waiting` is done."""
        row = self._rows[name] = _Row()
        try:
            await waiting
        except BaseException:
            self._end(name, row, "failed")
            raise
        self._end(name, row, "ready")

    def _end(self, name: str, row: _Row, state: str) -> None:
        row.state, row.ended = state, time.monotonic()
        if not self._console.is_terminal:
            self.say(f"{name:<16} {state} after {row.seconds:.1f} s")

    async def _refresh(self, live: Live) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, row in self._rows.items():
            style = _STYLES[row.state]
            table.add_row(name, f"[{style}]{row.state}[/{style}]", f"{row.seconds:.1f} s")
        return table
