"""The parts of a process, and the order in which it runs them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import nats.errors
import pytest
from litestar import Router, get
from litestar.di import NamedDependency, Provide
from nats.js.errors import NotFoundError, ServiceUnavailableError
from pymongo.errors import OperationFailure, WriteConcernError

import libs.common.process
from libs.common.bus.streams import find_uplink_streams
from libs.common.http import run_service
from libs.common.http.guards import applications
from libs.common.process import (
    PackageParts,
    collect_routers,
    create_routers,
    run_packages,
    start_and_stop,
    wait_for_store,
)
from libs.common.store.lease import Lease


class Leases:
    """A collection of leases that are free."""

    holder = ""

    async def find_one_and_update(self, _: Any, update: Any, **__: Any) -> dict[str, Any]:
        self.holder = update[0]["$set"]["holder"]["$cond"][1]
        return {"holder": self.holder}

    async def delete_one(self, _: Any) -> None:
        self.holder = ""


def test_the_routers_come_in_the_order_of_the_packages() -> None:
    first, second, third = (Router(path, route_handlers=[]) for path in ("/a", "/b", "/c"))
    assert collect_routers(
        [PackageParts(routers=[first, second]), PackageParts(), PackageParts(routers=[third])]
    ) == [
        first,
        second,
        third,
    ]


@dataclass(frozen=True)
class Handlers:
    """Dependencies of the handlers."""

    greeting: str


@get("/greeting", sync_to_thread=False)
def get_greeting(greeting: NamedDependency[str]) -> str:
    """Return a greeting."""
    return greeting


def test_only_operations_of_the_open_api_get_its_guard_and_all_get_the_dependencies() -> None:
    open_api, others = create_routers(
        Handlers("hello"), open_api=[get_greeting], others=[get_greeting]
    )
    assert (open_api.guards, others.guards) == ([applications], [])
    for router in (open_api, others):
        dependency = router.dependencies["greeting"]
        assert isinstance(dependency, Provide)
        assert dependency.dependency() == "hello"


async def test_tasks_and_jobs_run_between_the_first_and_the_last_use_of_resources() -> None:
    """Resources are closed in reverse order, after tasks and jobs have ended."""
    log: list[str] = []

    @asynccontextmanager
    async def resource(name: str) -> AsyncIterator[None]:
        log.append(f"open {name}")
        yield
        log.append(f"close {name}")

    async def work(name: str) -> None:
        log.append(f"begin {name}")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"end {name}")

    parts = [
        PackageParts(resources=[resource("first"), resource("second")]),
        PackageParts(
            resources=[resource("third")],
            tasks=[lambda: work("task")],
            jobs={"job": lambda: work("job")},
        ),
    ]
    leases = Leases()
    database: Any = {"leases": leases}
    async with run_packages(parts, database, "service"):
        async with asyncio.timeout(5):
            while len(log) < 5:
                await asyncio.sleep(0)
        assert leases.holder
    assert log[:3] == ["open first", "open second", "open third"]
    assert set(log[3:5]) == {"begin task", "begin job"}
    assert set(log[5:7]) == {"end task", "end job"}
    assert log[7:] == ["close third", "close second", "close first"]
    assert leases.holder == ""


async def test_a_lease_that_cannot_be_released_expires() -> None:
    """MongoDB may stop at the same time as the process; the error ends no job."""

    class Stopping(Leases):
        async def delete_one(self, _: Any) -> None:
            raise WriteConcernError("ShutdownInProgress", 91)

    leases = Stopping()
    database: Any = {"leases": leases}
    lease = Lease(database, "service")
    assert await lease.acquire()
    await lease.release()
    assert leases.holder


def test_a_process_that_cannot_run_logs_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Without it, Python would write a trace between lines of JSON."""

    async def main() -> None:
        raise TimeoutError("no NATS")

    with pytest.raises(SystemExit) as ended:
        run_service("test", main)
    assert ended.value.code == 1
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert record.exc_info


async def test_an_object_is_stopped_when_its_block_fails() -> None:
    log: list[str] = []

    async def start() -> None:
        log.append("start")

    async def stop() -> None:
        log.append("stop")

    with pytest.raises(KeyError):
        async with start_and_stop(start, stop), start_and_stop(stop=stop), start_and_stop(start):
            raise KeyError
    assert log == ["start", "start", "stop", "stop"]


async def test_a_process_waits_for_the_users_of_mongodb(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A job creates them; the process does not end before its deadline, and logs a reason once."""
    monkeypatch.setattr(libs.common.process, "_RETRY_SECONDS", 0)
    missing, later = (OperationFailure("Authentication failed.", 18, {"at": at}) for at in (1, 2))
    answers: list[OperationFailure | None] = [missing, later, None]

    async def ping() -> None:
        if error := answers.pop(0):
            raise error

    now = asyncio.get_running_loop().time()
    await wait_for_store("MongoDB", ping, now + 60)
    assert answers == []
    assert caplog.messages == ["waiting for MongoDB: Authentication failed."]
    answers.append(missing)
    with pytest.raises(OperationFailure):
        await wait_for_store("MongoDB", ping, now - 1)


async def test_a_process_waits_for_a_former_partition(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its reports are not stored without it; while it has no leader, nobody knows if it exists."""
    monkeypatch.setattr(libs.common.process, "_RETRY_SECONDS", 0)
    answers: list[Exception | None] = [nats.errors.TimeoutError(), ServiceUnavailableError(), None]

    class Streams:
        async def stream_info(self, name: str) -> None:
            if name != "UPLINK_3":
                raise NotFoundError
            if error := answers.pop(0):
                raise error

    js: Any = Streams()
    assert await wait_for_store("NATS", lambda: find_uplink_streams(js)) == ["UPLINK", "UPLINK_3"]
    assert [text.partition(": nats")[0] for text in caplog.messages] == [
        "waiting for NATS: stream UPLINK_3 does not answer"
    ] * 2
