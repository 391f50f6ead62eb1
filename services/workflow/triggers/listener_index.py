"""Index of the flows that listen to an entity key. No I/O.

Patterns with `*` are indexed by the text before the first and after the last `*`. A key is looked
up once for each pair of lengths of these texts, and not for each pattern.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from libs.common.changes import EntityChange
from services.workflow.engine.runner import FlowStart
from services.workflow.runs.model import Cause, DeployedFlow

PatternEnds = tuple[str, str]
"""The text of a pattern before its first and after its last `*`."""


class PatternSet:
    """A set of patterns of entity keys, with a fast search for those that match a key."""

    def __init__(self) -> None:
        self._by_ends: dict[PatternEnds, dict[str, tuple[str, ...]]] = {}
        self._lengths: Counter[tuple[int, int]] = Counter()

    def add(self, pattern: str) -> None:
        """Add a pattern with a `*`."""
        ends, middle = _split_pattern(pattern)
        patterns = self._by_ends.setdefault(ends, {})
        if pattern not in patterns:
            patterns[pattern] = middle
            self._lengths[len(ends[0]), len(ends[1])] += 1

    def remove(self, pattern: str) -> None:
        """Remove a pattern."""
        ends, _ = _split_pattern(pattern)
        del self._by_ends[ends][pattern]
        if not self._by_ends[ends]:
            del self._by_ends[ends]
        lengths = len(ends[0]), len(ends[1])
        self._lengths[lengths] -= 1
        if not self._lengths[lengths]:
            del self._lengths[lengths]

    def match(self, key: str) -> Iterator[str]:
        """Yield the patterns that match a key."""
        size = len(key)
        for before, behind in self._lengths:
            if before + behind <= size:
                patterns = self._by_ends.get((key[:before], key[size - behind :]))
                if patterns:
                    inner = key[before : size - behind]
                    yield from (
                        pattern
                        for pattern, parts in patterns.items()
                        if _contains_in_order(inner, parts)
                    )


def _split_pattern(pattern: str) -> tuple[PatternEnds, tuple[str, ...]]:
    first, *middle, last = pattern.split("*")
    return (first, last), tuple(part for part in middle if part)


def _contains_in_order(text: str, parts: tuple[str, ...]) -> bool:
    """Return whether `text` contains all parts in order without overlap."""
    begin = 0
    for part in parts:
        position = text.find(part, begin)
        if position < 0:
            return False
        begin = position + len(part)
    return True


class ListeningFlow(NamedTuple):
    """A flow, and the new values that it listens to.

    Flows with the same values share one map.
    """

    flow: DeployedFlow
    values: dict[str, Any]


class _TenantListeners:
    """The listening flows of one tenant."""

    def __init__(self) -> None:
        self.flows: dict[int, tuple[DeployedFlow, tuple[str, ...]]] = {}
        self._by_key: dict[str, set[int]] = defaultdict(set)
        self._patterns = PatternSet()

    def put(self, flow: DeployedFlow, keys: Iterable[str]) -> None:
        self.flows[flow.flow_id] = (flow, tuple(keys))
        for key in self.flows[flow.flow_id][1]:
            if "*" in key and key not in self._by_key:
                self._patterns.add(key)
            self._by_key[key].add(flow.flow_id)

    def remove(self, flow_id: int) -> None:
        for key in self.flows.pop(flow_id)[1]:
            holders = self._by_key[key]
            holders.discard(flow_id)
            if not holders:
                del self._by_key[key]
                if "*" in key:
                    self._patterns.remove(key)

    def find_listening_flows(self, key: str) -> set[int]:
        listeners = set(self._by_key.get(key, ()))
        for pattern in self._patterns.match(key):
            listeners |= self._by_key[pattern]
        return listeners


class ListenerIndex:
    """The listening flows of all tenants."""

    def __init__(self) -> None:
        self._tenants: dict[str, _TenantListeners] = {}
        self._tenant_of: dict[int, str] = {}

    def list_flow_ids(self) -> set[int]:
        """Return the ids of all flows in the index."""
        return set(self._tenant_of)

    def has_listeners(self, tenant: str) -> bool:
        """Return whether a tenant has a listening flow."""
        return tenant in self._tenants

    def put(self, flow: DeployedFlow, keys: Iterable[str]) -> None:
        """Add or replace a flow."""
        self.remove(flow.flow_id)
        self._tenant_of[flow.flow_id] = flow.tenant
        self._tenants.setdefault(flow.tenant, _TenantListeners()).put(flow, keys)

    def remove(self, flow_id: int) -> None:
        """Remove a flow if it is in the index."""
        name = self._tenant_of.pop(flow_id, None)
        if name is not None:
            tenant = self._tenants[name]
            tenant.remove(flow_id)
            if not tenant.flows:
                del self._tenants[name]

    def find_listening_flows(self, tenant: str, values: Mapping[str, Any]) -> list[ListeningFlow]:
        """Return the flows that listen to any of the values, with their values."""
        listeners = self._tenants.get(tenant)
        if listeners is None:
            return []
        found: defaultdict[int, list[str]] = defaultdict(list)
        for key in values:
            for flow_id in listeners.find_listening_flows(key):
                found[flow_id].append(key)
        keys_by_flow = {flow_id: tuple(keys) for flow_id, keys in sorted(found.items())}
        chosen = {keys: {key: values[key] for key in keys} for keys in set(keys_by_flow.values())}
        return [
            ListeningFlow(listeners.flows[flow_id][0], chosen[keys])
            for flow_id, keys in keys_by_flow.items()
        ]

    def find_crowded_key(self, flow: DeployedFlow, keys: Iterable[str], maximum: int) -> str | None:
        """Return a new key of the flow that `maximum` other flows listen to, or None."""
        listeners = self._tenants.get(flow.tenant)
        if listeners is None:
            return None
        _, current = listeners.flows.get(flow.flow_id, (flow, ()))
        new = (key for key in keys if key not in current)
        return next(
            (key for key in new if len(listeners.find_listening_flows(key)) >= maximum), None
        )


def build_event_starts(
    index: ListenerIndex, change: EntityChange, hops: int, trace: str = "", *, is_held: bool = False
) -> Iterator[FlowStart]:
    """Yield the start of a run for each flow that listens to a new value.

    The event's id is the key, so a redelivered event starts no second run.
    """
    cause = Cause(kind="EVENT", key=f"e-{change.event_id}", hops=hops, trace=trace)
    for flow, values in index.find_listening_flows(change.tenant, change.values):
        yield FlowStart(flow, values, cause, is_held)
