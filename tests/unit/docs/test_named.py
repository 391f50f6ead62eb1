"""Metrics and messages on the pages exist in the code."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUFFIX = re.compile("_(total|seconds)$")


def written(text: str) -> set[str]:
    """Return the metric names in code or text, without unit and `_total`."""
    found = re.findall(r"[\"`](thingway[._][a-z_.]+)[\"`]", text)
    return {SUFFIX.sub("", name.replace(".", "_")) for name in found}


@pytest.mark.parametrize("page", ["how-to/operations.md", "how-to/accounts.md"])
def test_every_metric_on_a_page_is_measured(page: str):
    """A service measures each metric that the page names."""
    sources = [
        file.read_text() for root in ("services", "libs") for file in (ROOT / root).rglob("*.py")
    ]
    measured = set().union(*map(written, sources))
    families = tuple(set().union(*(re.findall(r'f"(thingway_[a-z_]+)\{', one) for one in sources)))
    named = written((ROOT / "docs" / page).read_text())
    assert {name for name in named - measured if not name.startswith(families)} == set()


def test_every_message_of_the_bus_is_on_its_page():
    """`docs/reference/nats.md` names every message of `asyncapi.json`."""
    page = (ROOT / "docs/reference/nats.md").read_text()
    channels = json.loads((ROOT / "docs/reference/asyncapi.json").read_bytes())["channels"].values()
    promised = {name for channel in channels for name in channel["messages"]}
    assert {name for name in promised if f"`{name}`" not in page} == set()
