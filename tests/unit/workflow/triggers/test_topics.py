"""Which flows a message of an MQTT client begins."""

import asyncio
from types import SimpleNamespace

import pytest

from libs.common.bus.subjects import split_external_subject
from services.workflow.engine.runner import AdmissionResult
from services.workflow.nodes.parameters import convert_parameters
from services.workflow.nodes.triggers import SimpleMqttParameters
from services.workflow.runs.model import DeployedFlow
from services.workflow.triggers import topics
from services.workflow.triggers.topics import TopicIndex, TopicListener


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/b/c", False),
        ("a/b", "a", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("+/b", "a/b", True),
        ("a/#", "a", True),
        ("a/#", "a/b/c", True),
        ("#", "a/b", True),
        ("a/+/c", "a/b/d", False),
    ],
)
def test_topic_filters_follow_mqtt(pattern: str, topic: str, expected: bool) -> None:
    """Levels, `+` and `#` are supported (MQTT 3.1.1, 4.7)."""
    index, flow = TopicIndex(), _flow(1, "t")
    index.put(flow, SimpleMqttParameters(subscription_topic=pattern))
    assert [found for found, _ in index.find_flows("t", topic)] == [flow] * expected
    index.remove(1)
    assert not index._tenants.below


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("beaver-iot.mqtt@default.a.b", ("mqtt@default", "a/b")),
        ("beaver-iot.mqtt@default.a//b.c", ("mqtt@default", "a.b/c")),
        ("beaver-iot.mqtt@default.a./.b", ("mqtt@default", "a//b")),
    ],
)
def test_a_subject_is_read_as_the_topic_that_it_was(subject: str, expected: tuple[str, str]):
    """As nats-server writes topics: dots and empty levels, too."""
    assert split_external_subject(subject) == expected


@pytest.mark.parametrize("topic", ["", "/a", "a//b", "a/#/b", "a+", "a b", "/".join("a" * 21)])
def test_a_topic_that_nobody_can_publish_to_is_a_fault(topic: str) -> None:
    """Named by its field."""
    try:
        parameters = convert_parameters(SimpleMqttParameters, {"subscriptionTopic": topic})
    except ValueError:
        assert topic == ""
        return
    assert [fault.field for fault in parameters.find_faults()] == ["subscriptionTopic"]


def test_flows_of_other_tenants_and_of_other_topics_are_not_found() -> None:
    """A replaced flow has its new topic, and a removed flow has none."""
    index, parameters = TopicIndex(), SimpleMqttParameters(subscription_topic="a/+")
    ours, theirs = (_flow(number, tenant) for number, tenant in ((1, "t"), (2, "other")))
    index.put(ours, parameters)
    index.put(theirs, parameters)

    assert index.find_flows("t", "a/b") == [(ours, parameters)]
    index.put(ours, SimpleMqttParameters(subscription_topic="c"))
    assert index.find_flows("t", "a/b") == []
    assert [flow for flow, _ in index.find_flows("t", "c")] == [ours]
    index.remove(1)
    index.remove(1)
    assert (index.find_flows("t", "c"), index.list_flow_ids()) == ([], {2})


class Engine:
    """Records the runs of one tenant only when it is let to."""

    def __init__(self) -> None:
        self.recorded: list[str] = []
        self.busy = asyncio.Event()

    async def record_starts(self, starts):
        for start in starts:
            if start.flow.tenant == "busy":
                await self.busy.wait()
            self.recorded.append(start.flow.tenant)
        return AdmissionResult([], [])


async def test_messages_of_a_tenant_do_not_delay_those_of_another_one(monkeypatch) -> None:
    """However many wait; those that a tenant has no room for are dropped alone."""
    monkeypatch.setattr(topics, "MAX_WAITING_MESSAGES", 50)
    index, ready, engine = TopicIndex(), asyncio.Event(), Engine()
    ready.set()
    for number, tenant in ((1, "busy"), (2, "other")):
        parameters = SimpleMqttParameters(subscription_topic="#")
        index.put(_flow(number, tenant), parameters)
    listening = TopicListener(None, index, ready, engine)
    for tenant in ["busy"] * 1000 + ["other"]:
        message = SimpleNamespace(subject=f"beaver-iot.mqtt@{tenant}.a", data=b"1")
        await listening._receive(message)
    for _ in range(5):
        await asyncio.sleep(0)
    assert engine.recorded == ["other"]
    engine.busy.set()
    await listening._scheduler.finish()
    while listening._scheduler.held("busy"):
        await listening._scheduler.finish()
    assert engine.recorded.count("busy") == 50 + topics.MAX_CONCURRENT_PER_TENANT


def _flow(number: int, tenant: str):

    return DeployedFlow(
        tenant=tenant, flow_id=number, version=1, name="", node_id="n", component="simpleMqtt"
    )
