"""The dashboards, and the Grafana files that are made of them.

`python -m deploy.observability.dashboards` writes them to `dashboards/`; a test compares.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).with_name("dashboards")
SCHEMA = 39
"""Grafana 10.4 and later read it; newer ones bring it up to date themselves."""
COLUMNS, WIDTH, HEIGHT = 24, 8, 8
_RATE = "$__rate_interval"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


class Panel(NamedTuple):
    """A chart: lines by their legend, in a unit of Grafana's."""

    title: str
    text: str
    lines: dict[str, str]
    """PromQL by legend; `{{label}}` in it is filled in."""
    unit: str = "short"


class Dashboard(NamedTuple):
    """A page of charts."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def _rate(metric: str, by: str = "", where: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{where}[{_RATE}]))"


def _uplink(what: str) -> str:
    """Every replica of ingest shows the same totals."""
    return f"max(rate(thingway_uplink_{what}_total[{_RATE}]))"


def _quantiles(metric: str, where: str = "") -> dict[str, str]:
    rates = f"sum by (le) (rate({metric}_bucket{where}[{_RATE}]))"
    return {f"p{q * 100:g}": f"histogram_quantile({q}, {rates})" for q in (0.5, 0.95, 0.99)}


_LAG = Panel(
    "Lag of ingest",
    "Age of the oldest report that is not stored yet",
    {"oldest": 'max(thingway_stream_oldest_seconds{stream="UPLINK"})'},
    "s",
)
_REPORTS = Panel(
    "Messages of devices",
    "accepted = stored + rejected + waiting",
    {what: _uplink(what) for what in ("accepted", "stored", "rejected")},
    "cps",
)
_REQUESTS = Panel(
    "Requests",
    "Answered by the gateway, by status",
    {"{{status}}": _rate("thingway_gateway_requests_total", "status")},
    "reqps",
)
_LATENCY = Panel(
    "Time to answer",
    "Of requests to the gateway",
    _quantiles("thingway_gateway_latency_seconds"),
    "s",
)
_READY = Panel(
    "Dependencies",
    "1 is ready, 0 is not",
    {"{{service}}: {{dependency}}": "min by (service, dependency) (thingway_dependency_up)"},
)
_LIMITED = Panel(
    "Refused by limits",
    "By tenant and limit",
    {"{{tenant}} {{limit}}": _rate("thingway_limited_total", "tenant, limit")},
    "cps",
)
_STREAMS = Panel(
    "Streams",
    "Messages that each holds",
    {"{{stream}}": "max by (stream) (thingway_stream_messages)"},
)
_RUNS_WAITING = Panel(
    "Runs of flows that wait",
    "By tenant",
    {"{{tenant}}": "sum by (tenant) (thingway_flow_runs_waiting)"},
)

DASHBOARDS = (
    Dashboard(
        "overview",
        "Thingway: overview",
        (
            _READY,
            _REPORTS,
            _LAG,
            _REQUESTS,
            _LATENCY,
            _STREAMS,
            Panel(
                "Runs of flows",
                "That ended, by status",
                {"{{status}}": _rate("thingway_flow_runs_total", "status")},
                "cps",
            ),
            Panel(
                "Processes",
                "By service and version",
                {
                    "{{service}} {{version}}": "count by (service, version) (thingway_build_info)",
                },
            ),
            Panel(
                "Memory",
                "Of each process",
                {
                    "{{instance}}": "process_resident_memory_bytes"
                    " and on (job, instance) thingway_build_info"
                },
                "bytes",
            ),
        ),
    ),
    Dashboard(
        "ingest",
        "Thingway: ingest",
        (
            _REPORTS,
            _LAG,
            Panel("Messages that wait", "On UPLINK", {"waiting": "max(thingway_uplink_waiting)"}),
            Panel(
                "Time of a batch",
                "In hand to acknowledged",
                _quantiles("thingway_ingest_batch_seconds"),
                "s",
            ),
            Panel(
                "Size of a batch",
                "Messages",
                {
                    "mean": f"{_rate('thingway_ingest_batch_size_sum')}"
                    f" / {_rate('thingway_ingest_batch_size_count')}"
                },
            ),
            Panel(
                "Dead letters",
                "Messages that DEAD holds",
                {"DEAD": 'max(thingway_stream_messages{stream="DEAD"})'},
            ),
        ),
    ),
    Dashboard(
        "gateway",
        "Thingway: gateway and API",
        (
            _REQUESTS,
            Panel(
                "Requests by service",
                "Whom the gateway passed them on to",
                {"{{upstream}}": _rate("thingway_gateway_requests_total", "upstream")},
                "reqps",
            ),
            _LATENCY,
            Panel(
                "Failures",
                "5xx by route, and exchanges that a service broke",
                {
                    "{{route}}": _rate(
                        "thingway_gateway_requests_total", "route", '{status="5xx"}'
                    ),
                    "broken: {{upstream}}": _rate(
                        "thingway_gateway_upstream_failures_total", "upstream"
                    ),
                },
                "cps",
            ),
            Panel(
                "Refused with 429",
                "By route",
                {"{{route}}": _rate("thingway_gateway_limited_total", "route")},
                "cps",
            ),
            Panel("WebSockets", "Open now", {"open": "sum(thingway_gateway_websockets)"}),
            Panel(
                "Log-ins",
                "By door and outcome",
                {"{{door}} {{outcome}}": _rate("thingway_logins_total", "door, outcome")},
                "cps",
            ),
            Panel(
                "Plain NATS",
                "Messages that the relay did not pass on, by status",
                {"{{code}}": _rate("thingway_relay_refused_total", "code")},
                "cps",
            ),
            Panel(
                "Open files",
                "Part of what a process may have open",
                {
                    "{{instance}}": "process_open_fds / process_max_fds"
                    " and on (job, instance) thingway_build_info"
                },
                "percentunit",
            ),
        ),
    ),
    Dashboard(
        "stores",
        "Thingway: stores and bus",
        (
            _READY,
            _STREAMS,
            Panel(
                "Fill of streams",
                "Part of what each may hold; EVENTS purges tenants beyond their share from 80 % on",
                {
                    "{{stream}}": "max by (stream) (thingway_stream_bytes)"
                    " / max by (stream) (thingway_stream_limit_bytes > 0)"
                },
                "percentunit",
            ),
            Panel(
                "Missing copies",
                "Of each stream",
                {"{{stream}}": "max by (stream) (thingway_stream_replicas_missing)"},
            ),
            Panel(
                "Lag of consumers",
                "Messages that each has yet to deal with",
                {
                    "{{stream}} {{consumer}}": (
                        "max by (stream, consumer) (thingway_consumer_waiting)"
                    )
                },
            ),
            Panel(
                "Outbox",
                "Entries that are not sent yet, and the age of the oldest in s",
                {
                    "{{instance}}": "max by (instance) (thingway_outbox_depth)",
                    "oldest: {{instance}}": "max by (instance) (thingway_outbox_oldest_seconds)",
                },
            ),
            Panel(
                "MongoDB's volume",
                "Used and in all",
                {
                    "used": "max(thingway_mongo_disk_used_bytes)",
                    "size": "max(thingway_mongo_disk_bytes)",
                },
                "bytes",
            ),
        ),
    ),
    Dashboard(
        "tenants",
        "Thingway: tenants",
        (
            _LIMITED,
            _RUNS_WAITING,
            Panel(
                "Log-ins refused",
                "By door",
                {"{{door}}": _rate("thingway_logins_total", "door", '{outcome="refused"}')},
                "cps",
            ),
        ),
    ),
)


def rendered(dashboard: Dashboard) -> str:
    """The file that Grafana reads, with a variable for the data source."""
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    page: Json = {
        "uid": f"thingway-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["thingway"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": [_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(page, indent=1) + "\n"


def _panel(number: int, panel: Panel) -> Json:
    across = COLUMNS // WIDTH
    place = {"x": number % across * WIDTH, "y": number // across * HEIGHT}
    lines = enumerate(panel.lines.items())
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place | {"w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}, "legend": {"showLegend": True}},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expr}
            | {"legendFormat": legend}
            for place, (legend, expr) in lines
        ],
    }


def main() -> None:
    """Write the files."""
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(rendered(dashboard))


if __name__ == "__main__":
    main()
