"""Finds the flows that listen to a topic, level by level, however many flows there are. No I/O."""

from collections.abc import Iterator, Sequence

from services.workflow.nodes.simple_mqtt import SimpleMqttParameters
from services.workflow.runs.records import Deployed

Listener = tuple[Deployed, SimpleMqttParameters]


class _Level:
    """Filters with a common beginning."""

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.flows: dict[int, Listener] = {}
        """Flows whose filter ends here."""

    def match(self, levels: Sequence[str]) -> Iterator[Listener]:
        """Yield the flows whose filter means a topic (MQTT 3.1.1, 4.7)."""
        if "#" in self.below:
            yield from self.below["#"].flows.values()
        if not levels:
            yield from self.flows.values()
            return
        for name in (levels[0], "+"):
            if name in self.below:
                yield from self.below[name].match(levels[1:])


class TopicIndex:
    """The flows that begin with a message, of all tenants."""

    def __init__(self) -> None:
        self._flows: dict[int, list[str]] = {}
        """Tenant and levels of the filter of each flow."""
        self._tenants = _Level()

    def flow_ids(self) -> set[int]:
        """The flows that are there."""
        return set(self._flows)

    def put(self, flow: Deployed, parameters: SimpleMqttParameters) -> None:
        """Add a flow, or take it anew."""
        self.remove(flow.flow_id)
        names = self._flows[flow.flow_id] = [
            flow.tenant,
            *parameters.subscription_topic.split("/"),
        ]
        level = self._tenants
        for name in names:
            level = level.below.setdefault(name, _Level())
        level.flows[flow.flow_id] = flow, parameters

    def remove(self, flow_id: int) -> None:
        """Drop a flow; it may be unknown."""
        names = self._flows.pop(flow_id, [])
        path = [self._tenants]
        for name in names:
            path.append(path[-1].below[name])
        path[-1].flows.pop(flow_id, None)
        while names and not (path[-1].flows or path[-1].below):
            path.pop()
            del path[-1].below[names.pop()]

    def match(self, tenant: str, topic: str) -> list[Listener]:
        """The flows of a tenant that listen to a topic."""
        known = self._tenants.below.get(tenant)
        return [] if known is None else list(known.match(topic.split("/")))
