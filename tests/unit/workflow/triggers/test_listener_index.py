"""Which flows an event makes run."""

import pytest

from libs.common.bus import Wakeups
from libs.common.changes import ChangedThing, EntityChange
from libs.common.contracts.limits import Limits
from libs.common.errors import TooManyRequests
from services.workflow.nodes.triggers import EventListenerParameters
from services.workflow.triggers.deployed_flows import DeployedFlowIndex
from services.workflow.triggers.listener_index import ListenerIndex, PatternSet, build_event_starts
from tests.unit.workflow.triggers.flows import flow

KEY = "direct.device.SN1.temperature"


def find_listeners(index: ListenerIndex, *keys: str, tenant: str = "t") -> dict[int, list[str]]:
    """The flows that listen to keys, each with those it is given."""
    values = dict.fromkeys(keys, 1)
    return {
        one.flow.flow_id: sorted(one.values) for one in index.find_listening_flows(tenant, values)
    }


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("direct.device.SN1.*", True),
        ("*.temperature", True),
        ("direct.*.temperature", True),
        ("direct.*SN*temp*", True),
        ("*SN1*", True),
        ("direct.device.SN1.temperature*", True),
        ("*direct.device.SN1.temperature", True),
        ("direct.device.SN1.*temperature", True),
        ("direct.device.SN1.temp*temperature", False),
        ("direct.*temp*SN1*", False),
        ("device.*", False),
        ("*.humidity", False),
        ("direct.device.SN1.temperature.*", False),
        ("Direct.*", False),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, matches: bool):
    """For none, too; everything else is as it is written."""
    patterns = PatternSet()
    patterns.add(pattern)
    assert list(patterns.match(KEY)) == ([pattern] if matches else [])


def test_a_pattern_of_stars_alone_takes_no_longer_than_the_key_is_long():
    """Its parts are looked for one after the other and never tried again."""
    pattern = "a*" + "b*" * 400 + "c"
    patterns = PatternSet()
    patterns.add(pattern)
    assert list(patterns.match("a" + "b" * 399 + "c")) == []
    assert list(patterns.match("a" + "b" * 400 + "c")) == [pattern]


def test_a_flow_gets_only_the_entities_that_it_listens_to():
    """They match by key or pattern, and each value is given once."""
    index = ListenerIndex()
    index.put(flow(1), ["a.device.1.x", "a.device.1.*"])
    index.put(flow(2), ["a.device.1.y"])
    index.put(flow(3), ["b.*"])
    found = find_listeners(index, "a.device.1.x", "a.device.1.y")
    assert found == {1: ["a.device.1.x", "a.device.1.y"], 2: ["a.device.1.y"]}


def test_flows_of_other_tenants_hear_nothing():
    """Keys are the same in all tenants."""
    index = ListenerIndex()
    index.put(flow(1, tenant="one"), [KEY, "direct.*"])
    assert find_listeners(index, KEY, tenant="two") == {}
    assert find_listeners(index, KEY, tenant="one") == {1: [KEY]}


def test_a_flow_that_is_put_again_listens_to_its_new_keys_alone():
    """Also when it shares the old ones with others."""
    index = ListenerIndex()
    index.put(flow(1), ["k", "p.*"])
    index.put(flow(2), ["k", "p.*"])
    index.put(flow(1), ["n"])
    assert find_listeners(index, "k", "p.1", "n") == {1: ["n"], 2: ["k", "p.1"]}
    index.remove(2)
    index.remove(2)
    assert find_listeners(index, "k", "p.1", "n") == {1: ["n"]}
    index.remove(1)
    assert (find_listeners(index, "n"), index.list_flow_ids()) == ({}, set())


def test_the_cost_of_an_event_is_independent_of_the_patterns():
    """Patterns of one length share a lookup; only possible matches are compared."""
    looked = []

    class Counted(dict):
        def get(self, key, default=None):
            looked.append(key)
            return super().get(key, default)

    patterns = PatternSet()
    patterns._by_ends = Counted()
    for number in range(10_000):
        patterns.add(f"direct.device.SN{number:05}.*")
    assert list(patterns.match("direct.device.SN00042.x")) == ["direct.device.SN00042.*"]
    assert len(looked) == 1


def test_a_run_is_the_same_when_its_event_comes_again():
    """Its cause is the event, which also says how many flows have led to it."""
    index = ListenerIndex()
    index.put(flow(1), [KEY])
    thing = ChangedThing(5, "direct.device.SN1", "direct", True)
    change = EntityChange("E7", "t", thing, 0, {KEY: 21.5, "direct.device.SN1.other": 1})
    first, again = (list(build_event_starts(index, change, 3)) for _ in range(2))
    assert first == again
    (start,) = first
    assert (start.entered, start.cause.key, start.cause.hops) == ({KEY: 21.5}, "e-E7", 3)


@pytest.mark.parametrize(
    ("entities", "keys", "faults"),
    [
        (["a.b", "a.b", " c.d "], ["a.b", "c.d"], 0),
        ("a.b, c.d,", ["a.b", "c.d"], 0),
        ([], [], 1),
        (" , ", [], 1),
        (["*"], ["*"], 1),
        ([f"a{number}*" for number in range(21)], None, 1),
        ("x" * 1001, None, 1),
    ],
)
def test_listened_keys_are_validated(entities, keys, faults):
    """They are a list or a text with commas.

    At least one key, few patterns, none for everything.
    """
    parameters = EventListenerParameters(entities=entities)
    assert len(list(parameters.find_faults())) == faults
    if keys is not None:
        assert parameters.list_entity_keys() == keys


async def test_a_tenant_has_so_many_flows_that_listen_to_one_key():
    """Flows that listen to it already may be stored again, and other tenants may add theirs."""
    followed = DeployedFlowIndex(None, lambda _: Limits(key_flows=2), Wakeups(None, "workflow"))
    followed.index.put(flow(1), [KEY])
    followed.index.put(flow(2), ["direct.device.*"])
    for number, tenant, *keys in ((1, "t", KEY), (3, "t", f"{KEY}2"), (3, "other", KEY)):
        await followed.write_deployment(
            tenant, number, flow(number, tenant=tenant, entities=keys), None
        )
    with pytest.raises(TooManyRequests, match=f"keyFlows: at most 2 flows can listen to {KEY}"):
        await followed.write_deployment("t", 3, flow(3, entities=["b", KEY]), None)
