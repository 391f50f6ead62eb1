"""How `thingway doctor` assesses streams, processes, certificates and stores."""

import asyncio
import selectors
import socket
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from deploy.checkup import (
    bus,
    check_certificates,
    processes,
    run_checks,
    service_addresses,
    stores,
)
from deploy.checkup.findings import (
    MAX_CHECKUP_SECONDS,
    Finding,
    RunbookSection,
    build_error_finding,
)
from deploy.checkup.processes import DAY_SECONDS, ProcessState, parse_metrics_and_version
from deploy.platform.certificates import CertificateAuthority, create_authority_pem
from libs.common.store_metrics import (
    StreamContent,
    StreamLimits,
    StreamReading,
    StreamReplica,
    StreamServers,
)
from tests.unit.docs.test_links import ROOT

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = ProcessState("auth", {}, {"process_open_fds": 10, "process_max_fds": 1000}, "1.0")


def bad_findings(findings: Any) -> dict[str, Finding]:
    """Return the bad findings by subject."""
    return {finding.subject: finding for finding in findings if not finding.good}


def reading(held: int = 0, *, limit: int = 100, age: float = 0, **more: Any) -> StreamReading:
    """Return a stream with `held` bytes whose first message is `age` seconds old."""
    state = StreamContent(messages=held, bytes=held, first_ts=NOW - timedelta(seconds=age))
    copies = 3 if "cluster" in more else 1
    return StreamReading(state, StreamLimits(limit, copies), ts=NOW, **more)


@pytest.mark.parametrize(
    ("name", "stream", "wrong"),
    [
        ("UPLINK", reading(50, age=5), {}),
        ("UPLINK", reading(50, age=500), {"ingest lag"}),
        ("UPLINK", reading(80), {"stream UPLINK fill"}),
        ("UPLINK_3", reading(80, age=500), {"stream UPLINK_3 fill", "ingest lag of UPLINK_3"}),
        ("EVENTS", reading(80, age=500), {}),
        ("DEAD", reading(1), {"rejected messages"}),
        (
            "EVENTS",
            reading(
                cluster=StreamServers(
                    "a", [StreamReplica("b", current=True), StreamReplica("c", offline=True)]
                )
            ),
            {"stream EVENTS"},
        ),
        (
            "EVENTS",
            reading(
                cluster=StreamServers(
                    "a", [StreamReplica("b", current=True), StreamReplica("c", current=True)]
                )
            ),
            {},
        ),
    ],
)
def test_a_stream_is_assessed(name: str, stream: StreamReading, wrong: set[str]) -> None:
    """By its size unless it drops old messages, its replicas, and the ingest lag."""
    assert set(bad_findings(bus.assess_stream(name, stream))) == set(wrong)


def test_a_process_is_assessed() -> None:
    """By its dependencies, its open files, and its outbox."""
    assert bad_findings(processes.assess_process(READY)) == {}
    lacking = READY._replace(states={"mongo": "no primary", "nats": "ok"})
    assert (
        bad_findings(processes.assess_process(lacking))["service auth"].text == "mongo no primary"
    )
    assert not bad_findings(processes.assess_process(lacking))["service auth"].minor
    full = READY._replace(metrics={"process_open_fds": 900, "process_max_fds": 1000})
    assert bad_findings(processes.assess_process(full))["service auth open files"].minor
    waiting = {"thingway_outbox_oldest_seconds": 90.0, "thingway_outbox_depth": 7.0}
    stuck = READY._replace(metrics=READY.metrics | waiting)
    assert "7 entries" in bad_findings(processes.assess_process(stuck))["service auth outbox"].text


@pytest.mark.parametrize(("used", "bad"), [(700.0, False), (900.0, True)])
def test_a_store_that_is_nearly_full_is_reported(used: float, *, bad: bool) -> None:
    """The limit counts; a process that measures no store has no such finding."""
    metrics = {"thingway_jetstream_used_bytes": used, "thingway_jetstream_limit_bytes": 1000.0}
    process = READY._replace(metrics=READY.metrics | metrics)
    assert ("storage of NATS" in bad_findings(processes.assess_process(process))) == bad


@pytest.mark.parametrize(
    ("age", "wrong"),
    [(DAY_SECONDS, ""), (3 * DAY_SECONDS, "the last has the state of"), (None, "none exists")],
)
def test_an_old_backup_is_a_warning(age: float | None, wrong: str) -> None:
    """A backup is old after two days."""
    at = 0.0 if age is None else time.time() - age
    process = READY._replace(metrics={"thingway_backup_finished_timestamp_seconds": at})
    found = bad_findings(processes.assess_process(process)).get("backup")
    assert (found.text.startswith(wrong) and found.minor) if found else not wrong


def test_a_stream_that_was_created_again_is_reported_for_a_week() -> None:
    """Messages that waited in it are lost."""
    name = "thingway_stream_recreated_timestamp_seconds"
    for days, reported in ((1, True), (8, False)):
        process = READY._replace(metrics={name: time.time() - days * DAY_SECONDS})
        assert ("streams" in bad_findings(processes.assess_process(process))) == reported


def test_versions_that_differ_are_a_warning() -> None:
    """They differ during a rollout. A process with its metrics at another port shows none."""
    (same,) = processes.compare_versions([READY, READY, READY._replace(version="")])
    (differ,) = processes.compare_versions([READY, READY._replace(version="1.1")])
    assert (same.good, differ.good, differ.minor) == (True, False, True)
    assert "1.0, 1.1" in differ.text


def test_the_metrics_of_a_process_are_read() -> None:
    """The largest value of each series and the version are returned."""
    text = 'thingway_build_info{service="auth",version="1.0"} 1\nwaits{of="a"} 2\nwaits{of="b"} 3\n'
    metrics, version = parse_metrics_and_version(text)
    assert (metrics["waits"], version) == (3.0, "1.0")


@pytest.mark.parametrize(
    ("days", "good", "minor"), [(60, True, False), (7, False, True), (0, False, False)]
)
def test_a_certificate_is_reported_before_it_expires(
    tmp_path: Path, days: int, *, good: bool, minor: bool
) -> None:
    """Two weeks before its expiry is a warning; an expired certificate is bad_findings."""
    file = tmp_path / "server.pem"
    file.write_text(
        CertificateAuthority(create_authority_pem("a"))
        .issue_device_certificate("sn", days)
        .certificate
    )
    (finding,) = check_certificates({"THINGWAY_TLS_CERTIFICATE": str(file)})
    assert (finding.good, finding.minor) == (good, minor)


def test_an_invalid_certificate_is_reported(tmp_path: Path) -> None:
    """Likewise a missing file."""
    invalid = tmp_path / "ca.pem"
    invalid.write_text("none")
    settings = {"THINGWAY_CA_FILE": str(invalid), "THINGWAY_TLS_CERTIFICATE": "/nowhere.pem"}
    assert set(bad_findings(check_certificates(settings))) == {
        "certificate ca.pem",
        "certificate nowhere.pem",
    }


async def test_unreachable_members_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica set works while it has a primary; without one the finding is bad_findings."""
    monkeypatch.setattr(stores, "MAX_MEMBER_POLLS", 1)
    hello: dict[str, Any] = {"hosts": ["a", "b", "c"], "setName": "rs0", "primary": "a"}

    async def command(_: str) -> dict[str, Any]:
        return hello | {"localTime": datetime.now(UTC).replace(tzinfo=None)}

    database = SimpleNamespace(command=command)
    mongo: Any = SimpleNamespace(database=database, client=SimpleNamespace(nodes={"a", "b"}))
    (two,) = await stores.check_members("mongo", mongo)
    assert (two.good, two.minor, two.text) == (False, True, "2 of 3 members answer")
    del hello["primary"]
    (none,) = await stores.check_members("mongo", mongo)
    assert (none.good, none.minor) == (False, False)


def test_a_clock_difference_is_reported() -> None:
    """Only the difference beyond the request's duration counts."""
    later = NOW + timedelta(seconds=4)
    assert stores.clock_skew_seconds(NOW, NOW + timedelta(seconds=2), later) == 0
    assert stores.clock_skew_seconds(NOW, NOW + timedelta(seconds=9), later) == 5
    assert stores.clock_skew_seconds(NOW, NOW - timedelta(seconds=3), later) == 3


def test_services_are_found_in_the_settings_of_the_gateway() -> None:
    """These are the upstreams and the watched services."""
    settings = {
        "THINGWAY_UPSTREAMS": "a=http://a:1, b=http://b:2",
        "THINGWAY_WATCHED": "c=http://c:3",
    }
    assert service_addresses(settings) == {"a": "http://a:1", "b": "http://b:2", "c": "http://c:3"}
    assert service_addresses({}) == {}


def test_a_failure_contains_no_password() -> None:
    """Drivers put URLs into their errors."""
    finding = build_error_finding(
        "redis", OSError("no way to redis://me:secret@host:6379"), "stores"
    )
    assert "secret" not in finding.text


def test_every_section_of_findings_is_in_the_runbook() -> None:
    """Each section that the checks name is a heading of the runbook."""
    headings = {
        line.lstrip("# ").lower().replace(" ", "-")
        for line in (ROOT / "docs/how-to/runbooks.md").read_text().splitlines()
        if line.startswith("#")
    }
    assert set(get_args(RunbookSection)) <= headings


class ForwardSelector(selectors.DefaultSelector):
    """Moves a clock forward instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the events that have arrived."""
        events = super().select(None if timeout is None else 0)
        self.now += 0 if events else timeout or 0
        return events


def test_all_checks_end_at_one_deadline() -> None:
    """Servers that accept connections but do not respond are all named when the time is over.

    A name server that does not respond takes no additional time.
    """
    selector = ForwardSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    loop.getaddrinfo = lambda *_, **__: asyncio.sleep(60, [])  # type: ignore[method-assign]
    with (
        socket.create_server(("127.0.0.1", 0)) as frozen,
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        at = f"127.0.0.1:{frozen.getsockname()[1]}"
        settings = {
            "THINGWAY_MONGO_URL": f"mongodb://{at}/?directConnection=true",
            "THINGWAY_MONGO_DATABASE": "a",
            "THINGWAY_REDIS_URL": f"redis://{at}",
            "THINGWAY_NATS_URL": f"nats://{at}",
            "THINGWAY_SYS_NATS_USER": "sys",
        }
        found = runner.run(run_checks([settings], {"b": f"http://{at}"}))
    bad = bad_findings(found)
    assert set(bad) == {"mongo a", "redis", "nats", "nats servers", "service b"}
    assert {finding.text for finding in bad.values()} == {
        f"no answer within {MAX_CHECKUP_SECONDS:g} s"
    }
    assert selector.now < MAX_CHECKUP_SECONDS + 0.1
