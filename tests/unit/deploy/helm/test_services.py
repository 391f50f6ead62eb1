"""The chart has the platform's services, and values for each of them."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from deploy.platform.services import SERVICES
from libs.common.version import VERSION

CHART = Path(__file__).parents[4] / "deploy/helm/thingway"
LIST = CHART / "files/services.yaml"
HEAD = "# Made from deploy/platform/services.py by tests/unit/deploy/helm/test_services.py.\n"


def listed() -> str:
    """The chart's list: what each service runs, and which users of the stores it has."""
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


def test_the_list_is_the_one_of_the_code() -> None:
    """A service that is added to the platform is added to the chart."""
    assert LIST.read_text() == listed()


def test_values_name_every_service() -> None:
    """Each can be given replicas, resources and settings of its own, and no other is named."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert list(values["services"]) == [one.name for one in SERVICES]


def test_the_chart_is_of_this_version() -> None:
    """Without another tag it runs the image of the code beside it."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


if __name__ == "__main__":
    LIST.write_text(listed())
