"""Who writes through the APIs without pause, and what they were promised."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import aiomqtt

from tests.e2e.callers import Application, Console
from tests.e2e.devices import Device
from tests.e2e.waiting import until
from tests.faults.load import ANSWER, FAULTS, Unacknowledged
from tests.faults.operations import Operations, Verdict

PAUSE = 0.25
"""Seconds between two changes of one writer."""
CARRIED_OUT = 240.0
"""Seconds in which an accepted command reaches its end."""


class Writer:
    """Makes changes number 1, 2, 3, … and remembers those that were acknowledged."""

    def __init__(self, change: Callable[[int], Awaitable[Any]]) -> None:
        self._change = change
        self.operations = Operations()
        self.promised: dict[int, Any] = {}
        """What was answered, by number."""

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            number = self.operations.invoked + 1
            try:
                async with asyncio.timeout(2 * ANSWER):
                    self.promised[number] = await self._change(number)
            except FAULTS as error:
                refused = isinstance(error, Unacknowledged) and error.refused
                self.operations.unanswered(refused=refused)
            else:
                self.operations.acknowledge()
            await asyncio.sleep(PAUSE)


async def send(client: Application | Console, method: str, path: str, body: Any) -> Any:
    """`data` of an answer; raises `Unacknowledged` for any but success."""
    status, answer = await client.request(method, path, body)
    if status == 401:
        with contextlib.suppress(AssertionError):  # nobody may be able to log in just now
            await (client.log_in() if isinstance(client, Application) else client.sign_in())
    if status != 200:
        raise Unacknowledged(status)
    return answer.get("data")


class Writers:
    """Commands, devices and names through the open API, names through the management API."""

    def __init__(self, application: Application, console: Console) -> None:
        self._application = application
        self._console = console
        self.prefix = f"E2E{uuid4().hex[:8].upper()}"
        self._dashboard = ""
        self._unfinished: list[str] = []
        self._writers = {
            "commands": Writer(self._order),
            "additions": Writer(self._add),
            "names": Writer(self._rename),
            "dashboards": Writer(self._rename_dashboard),
        }

    async def start(self) -> None:
        """Create the device and the dashboard."""
        self.device: Device = await self._application.add_device()
        made = await self._console.data("POST", "/dashboard", {"name": f"{self.prefix} 0"})
        self._dashboard = made["dashboard_id"]

    @property
    def operations(self) -> Operations:
        """Return the sum of all counts."""
        total = Operations()
        for writer in self._writers.values():
            total.add(writer.operations)
        return total

    @contextlib.asynccontextmanager
    async def running(self):
        """Write inside; the device that gets the commands obeys them until they are ended."""
        jobs = [asyncio.create_task(writer.run()) for writer in self._writers.values()]
        obeying = asyncio.create_task(self._obey())
        try:
            yield
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await self._carried_out()
        finally:
            for job in (*jobs, obeying):
                job.cancel()
            await asyncio.gather(*jobs, obeying, return_exceptions=True)

    @property
    def names(self) -> list[str]:
        """Return the names of the writers."""
        return [*self._writers]

    async def go_on(self, seconds: float, name: str = "") -> None:
        """Wait until every writer, or that of `name`, has been given two more acknowledgements."""
        wanted = [name] if name else self.names
        before = {one: len(self._writers[one].promised) for one in wanted}

        async def all_acknowledged() -> bool:
            return all(
                len(self._writers[name].promised) > count + 1 for name, count in before.items()
            )

        await until(all_acknowledged, seconds)

    async def judge(self, commands: Counter[int], serials: Counter[str]) -> Verdict:
        """Compare the promised data with the APIs and with the counts in the stores.

        `commands` are those of the device by their value, `serials` the SNs of all devices.
        """
        verdict = Verdict()
        record = await self._application.data("GET", f"/devices/{self.device.id}")
        listed = await self._console.data("GET", "/dashboard/dashboards")
        (dashboard,) = (one for one in listed if one["dashboard_id"] == self._dashboard)
        for kind, name in (("names", record["name"]), ("dashboards", dashboard["name"])):
            promised = self._writers[kind].promised
            verdict.lost += [f"{kind} {one}" for one in promised if one > _number(name)]
        added = self._writers["additions"].promised
        verdict.lost += [f"device {one}" for one in added if self._serial(one) not in serials]
        verdict.doubled += [f"device {sn}" for sn, count in serials.items() if count > 1]
        verdict.doubled += [f"command {one}" for one, count in commands.items() if count > 1]
        verdict.lost += self._unfinished
        return verdict

    async def _carried_out(self) -> None:
        """Wait until each accepted command has ended well; the others count as lost."""
        left = dict(self._writers["commands"].promised)

        async def ended() -> bool:
            for number, task in list(left.items()):
                with contextlib.suppress(*FAULTS, AssertionError):
                    if (await self.device.task(task))["status"] == "SUCCESS":
                        del left[number]
            return not left

        deadline = asyncio.get_running_loop().time() + CARRIED_OUT
        while not await ended() and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(PAUSE)
        self._unfinished = [f"command {number} (task {task})" for number, task in left.items()]

    async def _obey(self) -> None:
        """Answer every command, over connection after connection."""
        while True:
            with contextlib.suppress(aiomqtt.MqttError, TimeoutError):
                identifier = f"c-{self.device.sn}"
                async with self.device.mqtt(identifier=identifier, clean=False) as mqtt:
                    while True:
                        await mqtt.answer(await mqtt.command(15))
            await asyncio.sleep(PAUSE)

    async def _order(self, number: int) -> int:
        config = {"properties": {"interval": number}}
        body = {"type": "TSL", "deviceIds": [self.device.id], "config": config}
        made = await send(self._application, "POST", "/tasks", body)
        return int(made["deviceTaskRelations"][0]["taskId"])

    def _serial(self, number: int) -> str:
        return f"{self.prefix}{number:05d}"

    async def _add(self, number: int) -> Any:
        sn = self._serial(number)
        return await send(self._application, "POST", "/devices", {"snDevEUI": sn, "name": sn})

    async def _rename(self, number: int) -> Any:
        body = {"deviceId": self.device.id, "name": f"name {number}"}
        return await send(self._application, "PUT", "/devices", body)

    async def _rename_dashboard(self, number: int) -> Any:
        body = {"name": f"{self.prefix} {number}", "widgets": []}
        return await send(self._console, "PUT", f"/dashboard/{self._dashboard}", body)


def _number(name: str) -> int:
    """Return the number in a name that a writer gave; 0 for the first name."""
    last = name.rpartition(" ")[2]
    return int(last) if last.isdigit() else 0
