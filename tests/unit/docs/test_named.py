"""Metrics and messages on the pages exist in the code."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from libs.common.contracts.limits import Limits

ROOT = Path(__file__).parents[3]
SUFFIX = re.compile("_(total|seconds)$")
UNITS = {1024**4: "TiB", 1024**3: "GiB", 1024**2: "MiB"}


def written(text: str) -> set[str]:
    """Return the metric names in code or text, without unit and `_total`."""
    found = re.findall(r"[\"`](thingway[._][a-z_.]+)[\"`]", text)
    return {SUFFIX.sub("", name.replace(".", "_")) for name in found}


@pytest.mark.parametrize("page", ["how-to/observability.md", "how-to/accounts.md"])
def test_every_metric_on_a_page_is_measured(page: str):
    """A service measures each metric that the page names."""
    sources = [
        file.read_text() for root in ("services", "libs") for file in (ROOT / root).rglob("*.py")
    ]
    measured = set().union(*map(written, sources))
    families = tuple(
        set().union(*(re.findall(r'f"(thingway_[a-z_]+)\{', source) for source in sources))
    )
    named = written((ROOT / "docs" / page).read_text())
    assert {name for name in named - measured if not name.startswith(families)} == set()


def test_every_message_of_the_bus_is_on_its_page():
    """`docs/reference/nats.md` names every message of `asyncapi.json`."""
    page = (ROOT / "docs/reference/nats.md").read_text()
    channels = json.loads((ROOT / "docs/reference/asyncapi.json").read_bytes())["channels"].values()
    promised = {name for channel in channels for name in channel["messages"]}
    assert {name for name in promised if f"`{name}`" not in page} == set()


def test_every_limit_of_a_tenant_is_on_its_page_with_its_default():
    """`docs/reference/limits.md` lists the limits in the order and with the values of the code."""
    page = (ROOT / "docs/reference/limits.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", page, re.MULTILINE)
    listed = {
        name.strip("`"): default
        for names, defaults in rows
        for name, default in zip(names.split(", "), defaults.split("; "), strict=True)
    }
    limits = msgspec.to_builtins(Limits())
    assert listed == {name: with_unit(name, number) for name, number in limits.items()}


def test_rejections_are_counted_by_the_names_of_limits():
    """The label `limit` of `thingway_limited_total` is a limit as programs read it."""
    sources = [file.read_text() for file in (ROOT / "services").rglob("*.py")]
    counted = set().union(
        *(re.findall(r"count_rejection\(\s*\"(\w+)\"", source) for source in sources)
    )
    assert counted
    assert counted <= msgspec.to_builtins(Limits()).keys()


def with_unit(name: str, number: int) -> str:
    """Return a number as the page writes it."""
    if not name.lower().endswith("bytes"):
        return f"{number:,}"
    unit = next(unit for unit in UNITS if number >= unit)
    return f"{number // unit} {UNITS[unit]}"


def test_a_run_of_the_fault_tests_keeps_the_text_of_their_page():
    """The page of the fault tests has the sentences of the template that a run fills in."""
    template = (ROOT / "tests/faults/faults.md").read_text()
    pattern = re.sub(r"\\{(where|seconds|table)\\}", ".+", re.escape(template))
    page = (ROOT / "docs/explanation/faults.md").read_text()
    assert re.fullmatch(pattern, page, re.DOTALL)
