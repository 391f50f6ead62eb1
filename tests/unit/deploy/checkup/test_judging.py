"""What doctor makes of what it sees."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from deploy.checkup import addresses_of, bus, check_certificates, processes, stores
from deploy.checkup.findings import Finding, Section, failed
from deploy.checkup.processes import Process, read_metrics
from deploy.platform.certificates import Authority, new_authority
from libs.common.store_metrics import Bounds, Cluster, Held, Peer, StreamReading
from tests.unit.docs.test_links import ROOT

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = Process("auth", {}, {"process_open_fds": 10, "process_max_fds": 1000}, "1.0")


def bad(findings: Any) -> dict[str, Finding]:
    """Those that are not good, by subject."""
    return {one.subject: one for one in findings if not one.good}


def reading(held: int = 0, *, limit: int = 100, age: float = 0, **more: Any) -> StreamReading:
    """A stream that holds so many bytes, the first message for so many seconds."""
    state = Held(messages=held, bytes=held, first_ts=NOW - timedelta(seconds=age))
    copies = 3 if "cluster" in more else 1
    return StreamReading(state, Bounds(limit, copies), ts=NOW, **more)


@pytest.mark.parametrize(
    ("name", "stream", "wrong"),
    [
        ("UPLINK", reading(50, age=5), {}),
        ("UPLINK", reading(50, age=500), {"lag of ingest"}),
        ("UPLINK", reading(80), {"stream UPLINK fill"}),
        ("EVENTS", reading(80, age=500), {}),
        ("DEAD", reading(1), {"dead letters"}),
        (
            "EVENTS",
            reading(cluster=Cluster("a", [Peer("b", current=True), Peer("c", offline=True)])),
            {"stream EVENTS"},
        ),
        (
            "EVENTS",
            reading(cluster=Cluster("a", [Peer("b", current=True), Peer("c", current=True)])),
            {},
        ),
    ],
)
def test_a_stream_is_judged(name: str, stream: StreamReading, wrong: set[str]) -> None:
    """By its fill unless it drops the oldest, its copies, and how long reports wait on it."""
    assert set(bad(bus.judged(name, stream))) == set(wrong)


def test_a_process_is_judged() -> None:
    """By what it lacks, its open files, and what waits in its outbox."""
    assert bad(processes.judged(READY)) == {}
    lacking = READY._replace(states={"mongo": "no primary", "nats": "ok"})
    assert bad(processes.judged(lacking))["service auth"].text == "mongo no primary"
    assert not bad(processes.judged(lacking))["service auth"].minor
    full = READY._replace(metrics={"process_open_fds": 900, "process_max_fds": 1000})
    assert bad(processes.judged(full))["service auth open files"].minor
    waiting = {"thingway_outbox_oldest_seconds": 90.0, "thingway_outbox_depth": 7.0}
    stuck = READY._replace(metrics=READY.metrics | waiting)
    assert "7 writes of events" in bad(processes.judged(stuck))["service auth outbox"].text


def test_versions_that_differ_are_a_warning() -> None:
    """A rollout goes on."""
    (same,) = processes.versions([READY, READY])
    (differ,) = processes.versions([READY, READY._replace(version="1.1")])
    assert (same.good, differ.good, differ.minor) == (True, False, True)
    assert "1.0, 1.1" in differ.text


def test_the_metrics_of_a_process_are_read() -> None:
    """The largest of each series, and the version."""
    text = 'thingway_build_info{service="auth",version="1.0"} 1\nwaits{of="a"} 2\nwaits{of="b"} 3\n'
    metrics, version = read_metrics(text)
    assert (metrics["waits"], version) == (3.0, "1.0")


@pytest.mark.parametrize(
    ("days", "good", "minor"), [(60, True, False), (7, False, True), (0, False, False)]
)
def test_a_certificate_is_told_before_it_ends(
    tmp_path: Path, days: int, *, good: bool, minor: bool
) -> None:
    """Two weeks before as a warning; one that has ended is bad."""
    file = tmp_path / "server.pem"
    file.write_text(Authority(new_authority("a")).device("sn", days).certificate)
    (finding,) = check_certificates({"THINGWAY_TLS_CERTIFICATE": str(file)})
    assert (finding.good, finding.minor) == (good, minor)


def test_a_certificate_that_is_none_is_told(tmp_path: Path) -> None:
    """And one that is not there."""
    strange = tmp_path / "ca.pem"
    strange.write_text("none")
    settings = {"THINGWAY_CA_FILE": str(strange), "THINGWAY_TLS_CERTIFICATE": "/nowhere.pem"}
    assert set(bad(check_certificates(settings))) == {
        "certificate ca.pem",
        "certificate nowhere.pem",
    }


async def test_members_that_do_not_answer_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The set works as long as there is a primary; without one it is bad."""
    monkeypatch.setattr(stores, "MEMBERS_LOOKS", 1)
    hello: dict[str, Any] = {"hosts": ["a", "b", "c"], "setName": "rs0", "primary": "a"}

    async def command(_: str) -> dict[str, Any]:
        return hello | {"localTime": datetime.now(UTC).replace(tzinfo=None)}

    database = SimpleNamespace(command=command)
    mongo: Any = SimpleNamespace(database=database, client=SimpleNamespace(nodes={"a", "b"}))
    two = await stores.members("mongo", mongo)
    assert (two.good, two.minor, two.text) == (False, True, "2 of 3 members answer")
    del hello["primary"]
    none = await stores.members("mongo", mongo)
    assert (none.good, none.minor) == (False, False)


def test_a_clock_that_differs_is_noticed() -> None:
    """By no more than is certain: the answer may have been under way."""
    later = NOW + timedelta(seconds=4)
    assert stores.skew(NOW, NOW + timedelta(seconds=2), later) == 0
    assert stores.skew(NOW, NOW + timedelta(seconds=9), later) == 5
    assert stores.skew(NOW, NOW - timedelta(seconds=3), later) == 3


def test_services_are_found_in_the_settings_of_the_gateway() -> None:
    """Those that it passes requests on to, and those that it watches."""
    settings = {
        "THINGWAY_UPSTREAMS": "a=http://a:1, b=http://b:2",
        "THINGWAY_WATCHED": "c=http://c:3",
    }
    assert addresses_of(settings) == {"a": "http://a:1", "b": "http://b:2", "c": "http://c:3"}
    assert addresses_of({}) == {}


def test_a_failure_shows_no_login() -> None:
    """Drivers put addresses into their errors."""
    told = failed("redis", OSError("no way to redis://me:secret@host:6379"), "stores")
    assert "secret" not in told.text


def test_what_a_finding_leads_to_is_in_the_runbook() -> None:
    """Each section that the checks name is a heading there."""
    headings = {
        line.lstrip("# ").lower().replace(" ", "-")
        for line in (ROOT / "docs/how-to/runbooks.md").read_text().splitlines()
        if line.startswith("#")
    }
    assert set(get_args(Section)) <= headings
