"""Matches of a keyword."""

import pytest

from libs.common.integrations.client import IntegrationSummary
from services.device.entities.search_filters import Keyword, matches_entity
from services.device.members.entity import EntityThing
from services.device.members.members import Member, MemberSet

MEMBER = Member(number=1, path="wifi.ssid", name="Network", type="PROPERTY", value_type="STRING")
THING = EntityThing(
    id=1,
    tenant="default",
    integration="ping",
    identifier="SN-7",
    device=True,
    name="Hall (north)",
    created_at=0,
    updated_at=0,
    members=MemberSet([MEMBER]),
)
KNOWN = {"ping": IntegrationSummary("Ping test"), "other": IntegrationSummary("Other")}


@pytest.mark.parametrize(
    "text",
    [
        "ping test",
        "HALL",
        "(north)",
        "sn-7",
        "g.device.s",
        "ping.device.sn-7.",
        "sn-7.",
        "device",
        ".",
    ],
)
def test_a_keyword_in_the_thing_finds_all_its_entities(text: str):
    """The name, the key with its dot, and the integration's name count."""
    assert Keyword(text, KNOWN).matches_thing(THING)


@pytest.mark.parametrize("text", ["network", "ssid", "wifi.s", ".wifi", "WIFI.SSID", "."])
def test_a_keyword_in_the_member_finds_it_everywhere(text: str):
    """The name and the path with the dot before it count."""
    assert Keyword(text, KNOWN).matches_member(MEMBER)


@pytest.mark.parametrize("text", ["sn-7.wifi", "7.W", "ping.device.sn-7.wifi.ssid", "7.wifi.s"])
def test_a_keyword_across_the_dot_finds_one_entity(text: str):
    """The keyword matches neither part alone."""
    keyword = Keyword(text, KNOWN)
    assert not keyword.matches_thing(THING)
    assert not keyword.matches_member(MEMBER)
    assert keyword.matches_across(THING, MEMBER)
    assert matches_entity(keyword, THING, MEMBER)


@pytest.mark.parametrize(
    "text", ["other", "hall.*", "sn-8", "n-7.ssid", "sn-7..wifi", "wifi.sn-7", "sn-7.ssid"]
)
def test_what_does_not_match(text: str):
    """A keyword has no wildcards, and its parts must be adjacent."""
    assert not matches_entity(Keyword(text, KNOWN), THING, MEMBER)
