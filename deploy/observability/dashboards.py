"""Generator of Grafana's JSON files from `dashboards.yaml`.

`python -m deploy.observability.dashboards` writes them to `dashboards/`; a test compares them.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DASHBOARDS_FOLDER = Path(__file__).with_name("dashboards")
DASHBOARDS_SOURCE = DASHBOARDS_FOLDER.with_suffix(".yaml")
SCHEMA_VERSION = 39
"""Schema version of Grafana 10.4; newer versions migrate it."""
COLUMNS, WIDTH, HEIGHT = 24, 8, 8
_DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


class Panel(NamedTuple):
    """A chart: its PromQL queries by legend, and a Grafana unit."""

    title: str
    text: str
    lines: dict[str, str]
    """PromQL by legend; Grafana replaces `{{label}}` in the legend."""
    unit: str = "short"


class Dashboard(NamedTuple):
    """A page of charts."""

    name: str
    title: str
    panels: tuple[Panel, ...]


DASHBOARDS = tuple(
    Dashboard(name, page["title"], tuple(Panel(**panel) for panel in page["panels"]))
    for name, page in yaml.safe_load(DASHBOARDS_SOURCE.read_text()).items()
)


def render_dashboard(dashboard: Dashboard) -> str:
    """Return the dashboard as Grafana's JSON, with a variable for the data source."""
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    page: Json = {
        "uid": f"thingway-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["thingway"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": [_render_panel(number, panel) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(page, indent=1) + "\n"


def _render_panel(number: int, panel: Panel) -> Json:
    across = COLUMNS // WIDTH
    position = {"x": number % across * WIDTH, "y": number // across * HEIGHT}
    lines = enumerate(panel.lines.items())
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATA_SOURCE,
        "gridPos": position | {"w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}, "legend": {"showLegend": True}},
        "targets": [
            {"refId": chr(ord("A") + position), "datasource": _DATA_SOURCE, "expr": expr}
            | {"legendFormat": legend}
            for position, (legend, expr) in lines
        ],
    }


def main() -> None:
    """Write a JSON file per dashboard."""
    for dashboard in DASHBOARDS:
        (DASHBOARDS_FOLDER / f"{dashboard.name}.json").write_text(render_dashboard(dashboard))


if __name__ == "__main__":
    main()
