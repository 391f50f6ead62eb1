"""The common interface of node types.

A node type is a class with a name, a group, a struct of parameters and either `run` (`Step`) or
`build_output` (`Entry`). One instance serves all flows of a process. It stores nothing between runs
except its dependencies, which the constructor receives (`nodes.wiring`).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, get_args

import msgspec

from libs.common.errors import InvalidInput, ThingwayError
from services.workflow.entities import Entities
from services.workflow.errors import NodeFailed, ValueUnknown
from services.workflow.expressions.references import (
    ReferenceInvalid,
    ReferenceMissing,
    find_references,
    format_text,
    resolve_references,
)
from services.workflow.nodes.parameters import ParameterFault, Parameters
from services.workflow.runs.model import FlowOwner

log = logging.getLogger(__name__)

TIMEOUT_MARGIN_SECONDS = 0.05
"""Seconds before the deadline of a node that are reserved for reporting a timeout."""
P = TypeVar("P", bound=Parameters)
S = TypeVar("S", bound=msgspec.Struct)


class PaletteGroup(StrEnum):
    """The group of a node type in the palette of editors."""

    ENTRY = "entry"
    CONTROL = "control"
    ACTION = "action"
    EXTERNAL = "external"


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a node in a run."""

    tenant: str
    flow_id: int | None
    """None in tests."""
    run_id: int
    node_id: str
    node_name: str
    hops: int
    """Number of flows that led to this run. Nodes send messages with `hops + 1`
    (`libs.common.bus.hops.HOPS_HEADER`), so that loops of flows end."""
    dry_run: bool
    """Whether nodes only validate their actions, without changing or sending anything."""
    deadline: float
    """Deadline of the node on the clock of the event loop."""
    properties: Mapping[str, Any]
    """Outputs of finished nodes, by node id."""
    sampled: Collection[str] = ()
    """Ids of nodes that were only validated; their outputs are samples."""
    notes: list[str] = []
    """Notes of the node for the log of the run."""

    def resolve_references(self, value: Any) -> Any:
        """Return `value` with its references replaced; raise `NodeFailed`.

        Raises `ValueUnknown` if a sample lacks the value, because the real output may have it.
        """
        try:
            return resolve_references(value, self.properties)
        except ReferenceMissing as error:
            if error.node in self.sampled:
                raise ValueUnknown(str(error)) from error
            raise NodeFailed(str(error)) from error
        except ReferenceInvalid as error:
            raise NodeFailed(str(error)) from error

    def find_names_with_samples(self, values: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of `values` that refer to samples; none in a real run."""
        if not self.sampled:
            return frozenset()
        return frozenset(
            name
            for name, value in values.items()
            if any(reference.node in self.sampled for reference in find_references(value))
        )

    def resolve_text(self, value: str) -> str:
        """Return `value` with its references replaced, as text."""
        return format_text(self.resolve_references(value))

    def resolve_texts(self, struct: S) -> S:
        """Return `struct` with the references in its texts replaced."""
        fields = msgspec.structs.asdict(struct).items()
        texts = {name: self.resolve_text(value) for name, value in fields if isinstance(value, str)}
        return msgspec.structs.replace(struct, **texts)

    @property
    def owner(self) -> FlowOwner:
        """Return tenant and flow of the run."""
        return FlowOwner(self.tenant, self.flow_id or 0)

    @property
    def seconds_left(self) -> float:
        """Return the timeout for calls, which ends shortly before the deadline."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time() - TIMEOUT_MARGIN_SECONDS)


class NodeType(ABC, Generic[P]):
    """A node type of flows: the base class of `Entry` and `Step`."""

    name: ClassVar[str]
    """`componentName` in designs."""
    title: ClassVar[str]
    description: ClassVar[str]
    group: ClassVar[PaletteGroup]
    parameters: type[P]
    """The struct of the parameters."""
    testable: ClassVar[bool] = False
    """Whether editors offer to test the node alone, possibly without input."""

    def __init_subclass__(cls) -> None:
        """Read the struct of parameters from the type argument of `Step` or `Entry`."""
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Parameters):
                    cls.parameters = cast("type[P]", argument)

    def find_faults(self, parameters: P) -> Iterable[ParameterFault]:
        """Return the faults of parameters; subclasses may add checks."""
        return parameters.find_faults()

    async def find_constant_faults(self, tenant: str, parameters: P) -> Iterable[ParameterFault]:
        """Return faults of constants that other services reject, before any run."""
        return ()


class Entry(NodeType[P]):
    """A node type that starts flows."""

    group = PaletteGroup.ENTRY

    def build_output(self, parameters: P, trigger_input: Any) -> Any:
        """Return the output of the entry for the input of a trigger or test.

        Raises `NodeFailed` if the input does not fit the parameters.
        """
        return trigger_input


class BranchChoice(NamedTuple):
    """The output of a fork, and the branch to follow."""

    handle: str | None
    """`sourceHandle` of the edges to follow; None ends the path."""
    output: Any


class SampleOutput(NamedTuple):
    """A sample that a step returns in a dry run if only a real run has the output."""

    output: Any


class Step(NodeType[P]):
    """A node type that processes an input."""

    testable = True
    repeatable: ClassVar[bool] = False
    """Whether repeating it is harmless. An interrupted run restarts only if all its started steps
    are repeatable."""
    forks: ClassVar[bool] = False
    """Whether `run` returns `BranchChoice`."""
    commands: ClassVar[bool] = False
    """Whether it sets values or calls services, which needs permission to command."""
    answers: ClassVar[bool] = False
    """Whether its output is the response of the run, even if other nodes finish later."""

    def list_handles(self, parameters: P) -> Iterable[str]:
        """Return the handles of outgoing edges; empty for a step that does not fork."""
        return ()

    def is_quick(self, parameters: P) -> bool:
        """Return whether the node waits only for our stores, which batch writes.

        Many more runs of flows with only such nodes may run concurrently (`engine.queue`).
        """
        return False

    def is_instant(self, parameters: P) -> bool:
        """Return whether the node never waits and computes little: it has no deadline."""
        return False

    @abstractmethod
    async def run(self, context: NodeContext, parameters: P, body: Any) -> Any:
        """Process `body` and return the output for the next nodes: JSON values only.

        `body` is the output of the node before; for a join, the merged maps of several nodes. A dry
        run returns `SampleOutput` if the output is unknown. Raises `NodeFailed`; it is cancelled at
        the deadline.
        """


class EntityStep(Step[P]):
    """A step that uses entities of `device`."""

    group = PaletteGroup.ACTION
    testable = False

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    async def read_latest(self, context: NodeContext, keys: list[str]) -> dict[str, Any]:
        """Return latest values by key; None for an entity without a value.

        A write-only entity has None too, and the log of the run names it.

        Raises `NodeFailed` for entities that do not exist.
        """
        values = await self._entities.read_values(context.tenant, keys)
        missing = [key for key in keys if key not in values.values]
        if missing:
            raise NodeFailed(f"entities do not exist: {', '.join(missing[:5])}")
        if values.write_only:
            listed = ", ".join(values.write_only[:5])
            context.notes.append(f"{listed}: write-only, so its value cannot be read")
        return {key: values.values[key] for key in keys}

    async def find_dry_run_faults(
        self, field: str, dry_run: Awaitable[Any]
    ) -> list[ParameterFault]:
        """Return the error of a dry run as a fault of a parameter.

        Only invalid values count. A missing or unreachable entity may be available in a later run.
        """
        try:
            await dry_run
        except InvalidInput as error:
            return [ParameterFault(field, error.message)]
        except ThingwayError as error:
            log.info("constants of a flow were not validated: %s", error)
        return []


AnyNodeType = NodeType[Any]


class NodeRegistry:
    """The node types of a process by name."""

    def __init__(self, nodes: Iterable[AnyNodeType]) -> None:
        self._nodes: dict[str, AnyNodeType] = {}
        for node in nodes:
            if node.name in self._nodes:
                raise ValueError(f"two node types have the name {node.name}")
            self._nodes[node.name] = node

    def find(self, name: str) -> AnyNodeType | None:
        """Return the node type with a name."""
        return self._nodes.get(name)

    def __iter__(self) -> Iterator[AnyNodeType]:
        return iter(self._nodes.values())
