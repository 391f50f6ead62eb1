"""Each alert fires and stays quiet when it should, and has a runbook section.

`promtool test rules` evaluates the rules with the engine of Prometheus. Debian and Ubuntu ship it
in the package `prometheus`; without it these tests are skipped.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.observability.dashboards import DASHBOARDS, DASHBOARDS_FOLDER, render_dashboard
from deploy.platform.services import SERVICES

ROOT = Path(__file__).parents[4]
RULES = ROOT / "deploy/observability/alerts.yaml"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not on PATH: install the package `prometheus`"
)
LONG = "80"
"""Length of a series in minutes, its step."""


class Case(NamedTuple):
    """Series of eighty minutes that make an alert fire, and series that do not."""

    fires: dict[str, str]
    quiet: dict[str, str]


INFO = 'thingway_build_info{job="t",instance="a",service="auth",version="1"}'
STREAM = 'thingway_stream_{}{{stream="{}"}}'
REQUESTS = 'thingway_gateway_requests_total{{route="device",upstream="device",status="{}"}}'
BUCKET = 'thingway_gateway_latency_seconds_bucket{{route="device",le="{}"}}'
EXPECTED = 'thingway_replicas_expected{service="auth"}'
NAMES = [service.name for service in SERVICES]
MEASURED = [
    *(STREAM.format("bytes", name) for name in ("UPLINK", "EVENTS")),
    'thingway_consumer_waiting{stream="EVENTS",consumer="workflow"}',
    "thingway_mongo_disk_bytes",
    "thingway_redis_memory_used_bytes",
    "thingway_jetstream_used_bytes",
    "thingway_backup_finished_timestamp_seconds",
]
DAY = 86_400


def _filling(what: str, labels: str, limit: str) -> Case:
    """Return a case in which `what` is filled by 85 or 40 %."""
    used, most = (
        f"thingway_{what}_{kind}bytes{{{labels}}}"
        for kind in ("used_", f"{limit}_" if limit else "")
    )
    return Case(
        {used: f"85x{LONG}", most: f"100x{LONG}"}, {used: f"40x{LONG}", most: f"100x{LONG}"}
    )


CASES = {
    "ThingwayServiceMissing": Case(
        {INFO.replace("auth", name): f"1x{LONG}" for name in NAMES[1:]},
        {INFO.replace("auth", name): f"1x{LONG}" for name in NAMES},
    ),
    "ThingwayReplicaMissing": Case(
        {INFO: f"1x{LONG}", EXPECTED: f"2x{LONG}"},
        {INFO: f"1x{LONG}", INFO.replace('"a"', '"b"'): f"1x{LONG}", EXPECTED: f"2x{LONG}"},
    ),
    "ThingwayMeasurementMissing": Case(
        dict.fromkeys(MEASURED[1:], f"1x{LONG}"), dict.fromkeys(MEASURED, f"1x{LONG}")
    ),
    "ThingwayStreamStorageFilling": _filling("jetstream", 'server="n1"', "limit"),
    "ThingwayRedisFilling": _filling("redis_memory", "", "limit"),
    "ThingwayBackupDiskFilling": _filling("backup_disk", "", ""),
    "ThingwayStreamRecreated": Case(
        {'thingway_stream_recreated_timestamp_seconds{stream="UPLINK"}': f"100x{LONG}"},
        {'thingway_stream_recreated_timestamp_seconds{stream="UPLINK"}': f"{-8 * DAY}x{LONG}"},
    ),
    "ThingwayBackupOld": Case(
        {"thingway_backup_finished_timestamp_seconds": f"{-2 * DAY}x{LONG}"},
        {"thingway_backup_finished_timestamp_seconds": f"0x{LONG}"},
    ),
    "ThingwayBackupUnverified": Case(
        {"thingway_backup_verified_timestamp_seconds": f"{-8 * DAY}x{LONG}"},
        {"thingway_backup_verified_timestamp_seconds": f"0x{LONG}"},
    ),
    "ThingwayBackupNotRestored": Case(
        {"thingway_backup_restored_timestamp_seconds": f"{-16 * DAY}x{LONG}"},
        {"thingway_backup_restored_timestamp_seconds": f"0x{LONG}"},
    ),
    "ThingwayCertificateExpires": Case(
        {'thingway_certificate_expires_timestamp_seconds{setting="ca_file"}': f"{13 * DAY}x{LONG}"},
        {'thingway_certificate_expires_timestamp_seconds{setting="ca_file"}': f"{15 * DAY}x{LONG}"},
    ),
    "ThingwayDependencyDown": Case(
        {'thingway_dependency_up{service="auth",dependency="mongo"}': f"0x{LONG}"},
        {'thingway_dependency_up{service="auth",dependency="mongo"}': f"1x{LONG}"},
    ),
    "ThingwayIngestLag": Case(
        {STREAM.format("oldest_seconds", "UPLINK"): f"0+60x{LONG}"},
        {
            STREAM.format("oldest_seconds", "UPLINK"): f"1x{LONG}",
            STREAM.format("oldest_seconds", "EVENTS"): f"600000x{LONG}",
        },
    ),
    "ThingwayMessagesRefused": Case(
        {
            "thingway_uplink_stored_total": f"0+90x{LONG}",
            "thingway_uplink_rejected_total": f"0+10x{LONG}",
        },
        {
            "thingway_uplink_stored_total": f"0+990x{LONG}",
            "thingway_uplink_rejected_total": f"0+10x{LONG}",
        },
    ),
    "ThingwayStreamFilling": Case(
        {
            STREAM.format("bytes", "UPLINK"): f"80x{LONG}",
            STREAM.format("limit_bytes", "UPLINK"): f"100x{LONG}",
        },
        {  # EVENTS deletes old messages, $MQTT_msgs has no limit
            STREAM.format("bytes", "EVENTS"): f"100x{LONG}",
            STREAM.format("limit_bytes", "EVENTS"): f"100x{LONG}",
            STREAM.format("bytes", "$MQTT_msgs"): f"80x{LONG}",
            STREAM.format("limit_bytes", "$MQTT_msgs"): f"-1x{LONG}",
            STREAM.format("messages", "UPLINK"): f"60x{LONG}",
            STREAM.format("limit_messages", "UPLINK"): f"100x{LONG}",
        },
    ),
    "ThingwayStreamReplicasMissing": Case(
        {STREAM.format("replicas_missing", "EVENTS"): f"1x{LONG}"},
        {STREAM.format("replicas_missing", "EVENTS"): f"0x{LONG}"},
    ),
    "ThingwayOutboxStuck": Case(
        {'thingway_outbox_oldest_seconds{instance="a"}': f"0+60x{LONG}"},
        {'thingway_outbox_oldest_seconds{instance="a"}': f"2x{LONG}"},
    ),
    "ThingwayEventsLag": Case(
        {'thingway_consumer_waiting{stream="EVENTS",consumer="workflow"}': f"20000x{LONG}"},
        {
            'thingway_consumer_waiting{stream="EVENTS",consumer="workflow"}': f"500x{LONG}",
            'thingway_consumer_waiting{stream="UPLINK",consumer="ingest"}': f"20000x{LONG}",
        },
    ),
    "ThingwayFlowRunsWaiting": Case(
        {
            f'thingway_flow_runs_waiting{{tenant="a",instance="{one}"}}': f"600x{LONG}"
            for one in "xy"
        },
        {f'thingway_flow_runs_waiting{{tenant="{one}"}}': f"600x{LONG}" for one in "xy"},
    ),
    "ThingwayApiErrors": Case(
        {REQUESTS.format("5xx"): f"0+5x{LONG}", REQUESTS.format("2xx"): f"0+100x{LONG}"},
        {REQUESTS.format("5xx"): f"0+1x{LONG}", REQUESTS.format("2xx"): f"0+1000x{LONG}"},
    ),
    "ThingwayApiSlow": Case(
        {BUCKET.format("1.0"): f"0+90x{LONG}", BUCKET.format("+Inf"): f"0+100x{LONG}"}
        | {BUCKET.format("2.5"): f"0+100x{LONG}"},
        {BUCKET.format("1.0"): f"0+99x{LONG}", BUCKET.format("+Inf"): f"0+100x{LONG}"},
    ),
    "ThingwayTenantLimited": Case(
        {'thingway_limited_total{tenant="a",limit="requests"}': f"0+120x{LONG}"},
        {'thingway_limited_total{tenant="a",limit="requests"}': f"0+10x{LONG}"},
    ),
    "ThingwayLoginsRefused": Case(
        {'thingway_logins_total{door="device",outcome="refused"}': f"0+600x{LONG}"},
        {'thingway_logins_total{door="device",outcome="ok"}': f"0+600x{LONG}"},
    ),
    "ThingwayDiskFilling": Case(
        {
            "thingway_mongo_disk_used_bytes": f"85x{LONG}",
            "thingway_mongo_disk_bytes": f"100x{LONG}",
        },
        {
            "thingway_mongo_disk_used_bytes": f"40x{LONG}",
            "thingway_mongo_disk_bytes": f"100x{LONG}",
        },
    ),
    "ThingwayOpenFiles": Case(
        {
            INFO: f"1x{LONG}",
            'process_open_fds{job="t",instance="a"}': f"900x{LONG}",
            'process_max_fds{job="t",instance="a"}': f"1000x{LONG}",
        },
        {  # of another program
            'process_open_fds{job="other",instance="a"}': f"900x{LONG}",
            'process_max_fds{job="other",instance="a"}': f"1000x{LONG}",
        },
    ),
    "ThingwayVersionsDiffer": Case(
        {INFO: f"1x{LONG}", INFO.replace('"1"', '"2"'): f"1x{LONG}"},
        {INFO: f"1x{LONG}", INFO.replace('"1"', '"2"'): "1x30 _x50"},
    ),
}


MANY_MESSAGES = {
    STREAM.format("messages", "UPLINK"): f"80x{LONG}",
    STREAM.format("limit_messages", "UPLINK"): f"100x{LONG}",
}
"""Series of a stream with many small messages."""


def test_each_alert_has_a_case() -> None:
    """Each case contains series that make it fire and series that do not."""
    assert set(CASES) == set(ALERTS)


def _promtool_test(
    alert: str,
    series: dict[str, str],
    *,
    fires: bool,
    at: str = "75m",
    interval: str = "1m",
) -> dict[str, Any]:
    """Return a test for promtool that evaluates the alert at the time `at`."""
    wanted = {"labels": "{}", "value": 1}
    return {
        "name": alert,
        "interval": interval,
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0',
                "eval_time": at,
                "exp_samples": [wanted] if fires else [],
            }
        ],
    }


def _evaluate(tests: list[dict[str, Any]], interval: str, folder: Path) -> None:
    """Run tests for promtool, each with the rule of its alert only: others would take time."""
    files = []
    for alert in {test["name"] for test in tests}:
        group = {"name": "thingway", "rules": [ALERTS[alert]]}
        (folder / f"{alert}-rules.yaml").write_text(yaml.safe_dump({"groups": [group]}))
        document = {
            "rule_files": [f"{alert}-rules.yaml"],
            "evaluation_interval": interval,
            "tests": [test for test in tests if test["name"] == alert],
        }
        files.append(folder / f"{alert}.yaml")
        files[-1].write_text(yaml.safe_dump(document))
    _promtool("test", "rules", *map(str, files))


def _of_partition(series: str) -> str:
    """Return the series of a partition, if it is one of a stream with partitions."""
    return re.sub('"(UPLINK|EVENTS)"', r'"\1_3"', series)


@needs_promtool
def test_alerts_fire_and_stay_quiet(tmp_path: Path) -> None:
    """Prometheus' engine evaluates each alert, for streams also with a partition."""
    tests = []
    for alert, case in CASES.items():
        tests.append(_promtool_test(alert, case.fires, fires=True))
        tests.append(_promtool_test(alert, case.quiet, fires=False))
        partition = {_of_partition(name): values for name, values in case.fires.items()}
        tests.append(_promtool_test(alert, partition, fires=True))
    tests.append(_promtool_test("ThingwayStreamFilling", MANY_MESSAGES, fires=True))
    _promtool("check", "rules", str(RULES))
    _evaluate(tests, "5m", tmp_path)


LOST, KEPT = "1x2 _x120", "1x122"
"""Values of thirty days, one every six hours: of a part that stops, and of one that runs."""


def _without(lost: str, every: list[str]) -> dict[str, str]:
    """Return series of which one ends."""
    return dict.fromkeys(every, KEPT) | {lost: LOST}


INFOS = [INFO.replace("auth", name) for name in NAMES]
OUTAGES = [
    *(("ThingwayServiceMissing", _without(lost, INFOS)) for lost in INFOS),
    *(("ThingwayMeasurementMissing", _without(lost, MEASURED)) for lost in MEASURED),
    ("ThingwayReplicaMissing", {INFO: KEPT, EXPECTED: "2x122"}),
    *(
        (f"ThingwayBackup{alert}", {f"thingway_backup_{name}_timestamp_seconds": "0x122"})
        for alert, name in (("Old", "finished"), ("Unverified", "verified"))
    ),
    ("ThingwayBackupNotRestored", {"thingway_backup_restored_timestamp_seconds": "1x122"}),
    *(
        (
            "ThingwayDependencyDown",
            {f'thingway_dependency_up{{service="auth",dependency="{store}"}}': "1x2 0x120"},
        )
        for store in ("mongo", "nats", "redis")
    ),
]
"""Alerts and series of outages: of each service, store, measurement and job."""


@needs_promtool
def test_alerts_of_an_outage_stay_for_thirty_days(tmp_path: Path) -> None:
    """They fire at the end of the outage, and with an empty Prometheus without any series."""
    tests = [
        _promtool_test(alert, series, fires=True, at="30d", interval="6h")
        for alert, series in OUTAGES
    ]
    empty = ("ThingwayServiceMissing", "ThingwayMeasurementMissing")
    tests += [
        _promtool_test(alert, {"up": "_x4"}, fires=True, at="12h", interval="6h") for alert in empty
    ]
    _evaluate(tests, "6h", tmp_path)


@needs_promtool
def test_dashboard_queries_are_valid_promql(tmp_path: Path) -> None:
    """Prometheus can parse each of them."""
    rules = [
        {"record": f"panel:{number}", "expr": expr.replace("$__rate_interval", "5m")}
        for number, expr in enumerate(
            line for page in DASHBOARDS for panel in page.panels for line in panel.lines.values()
        )
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    _promtool("check", "rules", str(file))


def _promtool(*words: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_links_to_its_runbook_section(alert: str) -> None:
    """`runbook` is a heading of the runbook with text below it."""
    page, _, anchor = ALERTS[alert]["annotations"]["runbook"].partition("#")
    sections = re.split(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE)
    texts = {
        title.lower(): text for title, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    assert anchor == alert.lower()
    assert len(texts[anchor].split()) > 20


def test_an_alert_has_a_severity_and_a_summary() -> None:
    """The runbook explains both severities."""
    for rule in ALERTS.values():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"].endswith(".")


def test_dashboard_files_are_up_to_date() -> None:
    """They equal the output of `python -m deploy.observability.dashboards`."""
    written = {file.stem: file.read_text() for file in DASHBOARDS_FOLDER.glob("*.json")}
    assert written == {page.name: render_dashboard(page) for page in DASHBOARDS}
    assert all(json.loads(text)["uid"].startswith("thingway-") for text in written.values())
