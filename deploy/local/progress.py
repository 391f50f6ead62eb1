"""Terminal output of a start: progress, and then a summary."""

import asyncio
import contextlib
import textwrap
import time
from collections.abc import AsyncIterator, Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from rich.console import Console
from rich.live import Live
from rich.table import Table

from deploy.platform import console
from deploy.platform.ready import FILE_NAME
from deploy.platform.state import Addresses, FirstApplication, FirstDevice, FirstUser, State

_REFRESH_SECONDS = 0.1
_STYLE_BY_STATE = {"starting": "yellow", "ready": "green", "failed": "red"}


@dataclass
class _ProgressRow:
    state: str = "starting"
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started


class StartProgress:
    """The table of processes that start, with their states and times."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rows: dict[str, _ProgressRow] = {}

    def print_line(self, line: str) -> None:
        """Print a line above the table; ignore a closed terminal."""
        with contextlib.suppress(OSError):
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    @contextlib.asynccontextmanager
    async def live_table(self) -> AsyncIterator[None]:
        """Keep the table up to date inside the block."""
        if not self._console.is_terminal:
            yield
            return
        with Live(self._build_table(), console=self._console, auto_refresh=False) as live:
            refresh = asyncio.create_task(self._refresh(live))
            try:
                yield
            finally:
                refresh.cancel()
                live.update(self._build_table(), refresh=True)

    async def follow(self, name: str, waiting: Awaitable[None]) -> None:
        """Show `name` as starting while awaiting `waiting`, then as ready or failed."""
        row = self._rows[name] = _ProgressRow()
        try:
            await waiting
        except BaseException:
            self._finish_row(name, row, "failed")
            raise
        self._finish_row(name, row, "ready")

    def _finish_row(self, name: str, row: _ProgressRow, state: str) -> None:
        row.state, row.ended = state, time.monotonic()
        if not self._console.is_terminal:
            self.print_line(f"{name:<16} {state} after {row.seconds:.1f} s")

    async def _refresh(self, live: Live) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            live.update(self._build_table(), refresh=True)

    def _build_table(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, row in self._rows.items():
            style = _STYLE_BY_STATE[row.state]
            table.add_row(name, f"[{style}]{row.state}[/{style}]", f"{row.seconds:.1f} s")
        return table


def format_summary(state: State, directory: Path) -> str:
    """Return addresses, credentials, example commands, and how to trust certificates."""
    addresses, application, device = state.addresses, state.application, state.device
    user = state.user
    if addresses is None or application is None or device is None or user is None:
        raise AssertionError("the summary requires a completed start")
    rows = {
        "console": _welcome_link(addresses, user),
        "API": addresses.base_url,
        "documentation": f"{addresses.base_url}/docs",
        "MQTT": addresses.mqtt_url,
        "over WebSocket": addresses.websocket_url,
        "by certificate": f"{addresses.certificate_url} {addresses.certificate_nats_url}".strip(),
        "NATS": addresses.nats_url,
        "authority": addresses.ca_file,
        "application": application.client_id,
        "console user": f"{user.email}, first password {user.password}",
        "console client": console.console_client(state)[0],
        "device": f"{device.sn} (id {device.device_id})",
        "data and logs": str(directory.resolve()),
        "credentials": str((directory / FILE_NAME).resolve()),
    }
    lines = "".join(f"  {name:<14} {value}\n" for name, value in rows.items() if value)
    trust = _trust_instructions(addresses, device) if addresses.ca_file else ""
    examples = _example_commands(addresses, application, device)
    return (
        f"\nThingway is ready.\n\n{lines}{trust}\n{examples}\nPress Ctrl-C to stop the platform.\n"
    )


def _welcome_link(addresses: Addresses, user: FirstUser) -> str:
    """Return a link that signs the first user in until they choose a password.

    The credentials are in the fragment, so browsers do not send them to a server.
    """
    login = urlencode({"email": user.email, "password": user.password})
    return f"{addresses.base_url}/#/welcome?{login}"


def _example_commands(
    addresses: Addresses, application: FirstApplication, device: FirstDevice
) -> str:
    base = addresses.base_url
    curl = f"curl -s --cacert {addresses.ca_file}" if addresses.ca_file else "curl -s"
    form = f"client_id={application.client_id}&client_secret={application.client_secret}"
    history = f"{base}/device/openapi/v1/devices/{device.device_id}/properties/history?pageSize=3"
    return textwrap.dedent(f"""\
        History of the simulated device:

        TOKEN=$({curl} {base}/oauth/token -d grant_type=client_credentials -d '{form}' \
| sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')
        {curl} -H "Authorization: Bearer $TOKEN" '{history}'
        """)


def _trust_instructions(addresses: Addresses, device: FirstDevice) -> str:
    """Return how clients trust the certificate authority."""
    mqtt, file = urlsplit(addresses.mqtt_url.split(",")[0]), addresses.ca_file
    return textwrap.dedent(f"""
        All connections use TLS with certificates of this installation's own authority:

        curl --cacert {file} {addresses.base_url}/readyz
        mosquitto_sub --cafile {file} -h {mqtt.hostname} -p {mqtt.port} \
-i {device.sn} -u {device.sn} -P KEY -t 'thing/{device.sn}/down/#'
        Browser: import the file as an authority for web sites. For Python and other
        programs that use OpenSSL, set SSL_CERT_FILE={file}.
        """)
