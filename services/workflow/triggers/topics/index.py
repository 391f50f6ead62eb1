"""Finds the flows that listen to a topic. No I/O."""

from collections import defaultdict
from collections.abc import Sequence

from services.workflow.nodes.simple_mqtt import SimpleMqttParameters
from services.workflow.runs.records import Deployed

Listener = tuple[Deployed, SimpleMqttParameters]


class TopicIndex:
    """The flows that begin with a message, of all tenants."""

    def __init__(self) -> None:
        self._tenants: dict[str, dict[int, Listener]] = defaultdict(dict)
        self._tenant_of: dict[int, str] = {}

    def flow_ids(self) -> set[int]:
        """The flows that are there."""
        return set(self._tenant_of)

    def put(self, flow: Deployed, parameters: SimpleMqttParameters) -> None:
        """Add a flow, or take it anew."""
        self.remove(flow.flow_id)
        self._tenant_of[flow.flow_id] = flow.tenant
        self._tenants[flow.tenant][flow.flow_id] = flow, parameters

    def remove(self, flow_id: int) -> None:
        """Drop a flow; it may be unknown."""
        tenant = self._tenant_of.pop(flow_id, None)
        if tenant is not None:
            del self._tenants[tenant][flow_id]
            if not self._tenants[tenant]:
                del self._tenants[tenant]

    def match(self, tenant: str, topic: str) -> list[Listener]:
        """The flows of a tenant that listen to a topic."""
        levels = topic.split("/")
        found = self._tenants.get(tenant, {}).values()
        return [one for one in found if matches(one[1].subscription_topic.split("/"), levels)]


def matches(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether a topic is one that a filter means (MQTT 3.1.1, 4.7)."""
    for at, wanted in enumerate(pattern):
        if wanted == "#":
            return True
        if at >= len(levels) or wanted not in {"+", levels[at]}:
            return pattern[at:] == ["#"]
    return len(pattern) == len(levels)
