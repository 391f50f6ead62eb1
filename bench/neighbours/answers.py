"""Answers and files: large answers for one tenant, and workbooks that unpack to a million rows."""

import asyncio
import io
import zipfile
from collections.abc import Callable
from typing import Any, ClassVar

import aiohttp
import xlsxwriter

from bench.neighbours.harness import Arena, Contest, Count
from bench.tenants import Tenant, data

OPEN_API = "/device/openapi/v1/devices"
DASHBOARDS, WIDGETS, WIDGET = 40, 10, 400_000
"""Dashboards, widgets of each, and bytes of each widget."""
RECORDS, VALUES, VALUE = 600, 4, 62_500
"""Reports of the first device, values of each report, and bytes of a value."""


class Answers(Contest):
    """Four requests for large answers at a time."""

    name = "5. 40 dashboards of 4 MB, 600 records of 250 KB, searches; a dashboard and a device"
    devices: ClassVar = (1, 20)
    settings: ClassVar = {"THINGWAY_PRINCIPAL_RATE": "0"}

    async def prepare(self, arena: Arena) -> None:
        """Store the large dashboards and records."""
        self.base = arena.base
        self.user, self.app = bearer(arena.loud.token), bearer(arena.loud.app_token)
        self.quiet = bearer(arena.quiet.token), bearer(arena.quiet.app_token)
        self.quiet_device, _ = arena.quiet.devices[0]
        await _add_dashboard(arena.http, arena.quiet, 0, 1, 1_000)
        await asyncio.gather(
            *(
                _add_dashboard(arena.http, arena.loud, number, WIDGETS, WIDGET)
                for number in range(DASHBOARDS)
            )
        )
        self.device, self.entities = await self._store_values(arena)

    async def probe(self, arena: Arena, number: int) -> None:
        """Ask `management` for dashboards, or `device` for a device."""
        user, app = self.quiet
        path, login = "/dashboard/dashboards", user
        if number % 2:
            path, login = f"{OPEN_API}/{self.quiet_device}", app
        async with arena.http.get(path, headers=login) as answer:
            await data(answer)

    async def attack(self, count: Count) -> None:
        """Ask for each kind of large answer again and again."""
        everything = {"page_size": 100_000, "page_number": 1}
        history = {"entity_ids": self.entities, **everything}
        search = {"entity_filter": {}, **everything}
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            for ask in (
                lambda: http.get("/dashboard/dashboards", headers=self.user),
                lambda: http.get(
                    f"{OPEN_API}/{self.device}/properties/history?pageSize=1000&startTime=0",
                    headers=self.app,
                ),
                lambda: http.post("/entity/history/search", json=history, headers=self.user),
                lambda: http.post("/entity/advanced-search", json=search, headers=self.user),
            ):
                tasks.create_task(_again(ask, count))

    async def _store_values(self, arena: Arena) -> tuple[int, list[str]]:
        """Report large values; return the device with the history, and its entities."""
        logins = []
        for number in range(20):
            device = await arena.loud.api.ensure_device(f"LARGE{number}", "Large", "generic")
            logins.append((device, *await arena.loud.api.issue_credentials(device)))
        first = logins[0]
        for _ in range(RECORDS):
            await _report(arena.http, first[1], first[2])
        for _, sn, key in logins[1:]:
            await _report(arena.http, sn, key)
        found = {"keyword": "text", "page_size": 100, "page_number": 1}
        async with arena.http.post(
            "/entity/search", json=found, headers=bearer(arena.loud.token)
        ) as answer:
            entities = (await data(answer))["content"]
        mine = [entity["entity_id"] for entity in entities if entity["device_id"] == str(first[0])]
        return first[0], mine


class Workbooks(Contest):
    """Workbooks of a few KB with a million rows."""

    name = "10. 4 workbooks of 80 KB with a million rows at a time; a device"

    async def prepare(self, arena: Arena) -> None:
        """Make the workbook."""
        self.base = arena.base
        self.user = bearer(arena.loud.token)
        self.quiet = bearer(arena.quiet.app_token)
        self.quiet_device, _ = arena.quiet.devices[0]
        self.workbook = workbook(1_000_000)

    async def probe(self, arena: Arena, number: int) -> None:
        """Read a device."""
        path = f"{OPEN_API}/{self.quiet_device}"
        async with arena.http.get(path, headers=self.quiet) as answer:
            await data(answer)

    async def attack(self, count: Count) -> None:
        """Send the workbook again and again."""
        async with aiohttp.ClientSession(self.base) as http, asyncio.TaskGroup() as tasks:
            for _ in range(4):
                tasks.create_task(self._send(http, count))

    async def _send(self, http: aiohttp.ClientSession, count: Count) -> None:
        while True:
            form = aiohttp.FormData({"integration": "direct"})
            form.add_field("file", self.workbook, filename="devices.xlsx")
            async with http.post("/device-batch/parse", data=form, headers=self.user) as answer:
                body = await answer.json()
                if body["error_code"] != "device_list_sheet_device_over_limitation":
                    raise RuntimeError(f"{answer.status} {body}")
            count()


def bearer(token: str) -> dict[str, str]:
    """Return the header of a token."""
    return {"Authorization": f"Bearer {token}"}


def workbook(rows: int) -> bytes:
    """Return a workbook whose first row has titles and whose other rows are alike."""
    made, changed = io.BytesIO(), io.BytesIO()
    with xlsxwriter.Workbook(made, {"in_memory": True}) as book:
        sheet = book.add_worksheet()
        sheet.write_row(0, 0, ["Name", "A device with a name"])
    row = '<row><c t="s"><v>1</v></c></row>'
    with zipfile.ZipFile(made) as source, zipfile.ZipFile(changed, "w", 8, compresslevel=9) as out:
        for name in source.namelist():
            text = source.read(name)
            if name.startswith("xl/worksheets/sheet"):
                start, end, tail = text.partition(b"</sheetData>")
                head = start.replace(b'<c r="B1" t="s"><v>1</v></c>', b"")
                text = head + (row * rows).encode() + end + tail
            out.writestr(name, text)
    return changed.getvalue()


async def _again(ask: Callable[[], Any], count: Count) -> None:
    """Ask, and read the whole answer."""
    while True:
        async with ask() as answer:
            tail = b""
            async for part in answer.content.iter_chunked(65_536):
                tail = (tail + part)[-200:]
            if answer.status != 200 or b'"status":"Success"' not in tail:
                raise RuntimeError(f"{answer.url}: {answer.status} {tail!r}")
        count()


async def _add_dashboard(
    http: aiohttp.ClientSession, tenant: Tenant, number: int, widgets: int, size: int
) -> None:
    login = bearer(tenant.token)
    name = f"Dashboard {number}"
    async with http.post("/dashboard", json={"name": name}, headers=login) as answer:
        made = (await data(answer))["dashboard_id"]
    drawn = [{"data": {"type": "text", "text": "x" * size}} for _ in range(widgets)]
    body = {"name": name, "widgets": drawn}
    async with http.put(f"/dashboard/{made}", json=body, headers=login) as answer:
        await data(answer)


async def _report(http: aiohttp.ClientSession, sn: str, key: str) -> None:
    """Report a large value, as soon as the tenant may."""
    headers = {"Authorization": aiohttp.encode_basic_auth(sn, key)}
    body = {"properties": {f"text{number}": "x" * VALUE for number in range(VALUES)}}
    while True:
        path = f"/ingest/v1/{sn}/report?wait=stored"
        async with http.post(path, json=body, headers=headers) as answer:
            if answer.status != 429:
                await data(answer)
                return
        await asyncio.sleep(1)
