"""The chart lists the platform's services and has values for each of them."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from deploy.platform.services import SERVICES
from libs.common.version import VERSION

CHART = Path(__file__).parents[4] / "deploy/helm/thingway"
LIST = CHART / "files/services.yaml"
HEAD = "# Made from deploy/platform/services.py by tests/unit/deploy/helm/test_services.py.\n"


def service_list() -> str:
    """Return the chart's list: module and store users of each service."""
    services: list[dict[str, Any]] = [
        {
            "name": one.name,
            "module": one.module,
            "mongo": one.store_user if one.database else "",
            "redis": one.store_user if one.redis_pattern else "",
            "upstream": one.upstream,
            "watched": one.watched,
            "outgoing": any(field.name == "outgoing_networks" for field in fields(one.settings)),
        }
        for one in SERVICES
    ]
    return HEAD + yaml.safe_dump({"services": services}, sort_keys=False)


def test_the_list_equals_the_services_of_the_platform() -> None:
    """A new service of the platform must be added to the chart."""
    assert LIST.read_text() == service_list()


def test_values_name_every_service() -> None:
    """Replicas, resources and settings can be set for each service, and for no other."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert list(values["services"]) == [one.name for one in SERVICES]


def test_the_chart_has_the_version_of_the_platform() -> None:
    """By default the chart runs the image of the same version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


if __name__ == "__main__":
    LIST.write_text(service_list())
