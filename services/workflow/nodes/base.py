"""The one interface of all node types.

A node type is a class with a name, a group, a struct of parameters and either `run` (`Step`)
or `entered` (`Entry`). One instance serves all flows of a process: it keeps nothing between
runs but its collaborators, which arrive in its constructor (`nodes.wiring` makes them).
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
from services.workflow.errors import NodeFailed, NotKnown
from services.workflow.expressions.references import (
    ReferenceInvalid,
    ReferenceMissing,
    as_text,
    references_in,
    resolve,
)
from services.workflow.nodes.parameters import Fault, Parameters
from services.workflow.runs.model import Owner

log = logging.getLogger(__name__)

MARGIN = 0.05
"""Seconds that a node keeps for saying that what it asked was late."""
P = TypeVar("P", bound=Parameters)
S = TypeVar("S", bound=msgspec.Struct)


class Group(StrEnum):
    """Where an editor's palette shows a node type."""

    ENTRY = "entry"
    CONTROL = "control"
    ACTION = "action"
    EXTERNAL = "external"


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows of its run."""

    tenant: str
    flow_id: int | None
    """None in a test of a design."""
    run_id: int
    node_id: str
    node_name: str
    hops: int
    """How many flows have led to this run, 0 when none did. What a node sends goes out with
    `hops + 1` (`libs.common.bus.hops.HOPS`), so that a flow that feeds itself comes to an end."""
    dry_run: bool
    """A test that shall change and send nothing: judge what would be done instead of doing it."""
    deadline: float
    """When the node must be done, on the clock of the event loop."""
    properties: Mapping[str, Any]
    """Outputs of the nodes that are finished, by node id."""
    supposed: Collection[str] = ()
    """Those among them that were not done: what they have put out is a sample."""
    notes: list[str] = []
    """What the log of the run shall say of this node; nodes add to it."""

    def resolve(self, value: Any) -> Any:
        """`value` with its references replaced; raise `NodeFailed` naming one to nothing.

        Raises `NotKnown` where a sample has nothing, and what it stands for may have.
        """
        try:
            return resolve(value, self.properties)
        except ReferenceMissing as error:
            if error.node in self.supposed:
                raise NotKnown(str(error)) from error
            raise NodeFailed(str(error)) from error
        except ReferenceInvalid as error:
            raise NodeFailed(str(error)) from error

    def guessed(self, values: Mapping[str, Any]) -> frozenset[str]:
        """The names of those `values` that refer to samples; none in a run that is for real."""
        if not self.supposed:
            return frozenset()
        return frozenset(
            name
            for name, value in values.items()
            if any(one.node in self.supposed for one in references_in(value))
        )

    def text(self, value: str) -> str:
        """`value` with its references replaced, as text."""
        return as_text(self.resolve(value))

    def texts(self, struct: S) -> S:
        """`struct` with the references in its texts replaced."""
        fields = msgspec.structs.asdict(struct).items()
        texts = {name: self.text(value) for name, value in fields if isinstance(value, str)}
        return msgspec.structs.replace(struct, **texts)

    @property
    def owner(self) -> Owner:
        """Whose run it is."""
        return Owner(self.tenant, self.flow_id or 0)

    @property
    def seconds_left(self) -> float:
        """What the node may give others, who are to be late before the node is; not below zero."""
        return max(0.0, self.deadline - asyncio.get_running_loop().time() - MARGIN)


class Node(ABC, Generic[P]):
    """What both kinds of node types have."""

    name: ClassVar[str]
    """`componentName` of designs."""
    title: ClassVar[str]
    description: ClassVar[str]
    group: ClassVar[Group]
    parameters: type[P]
    """The struct of its parameters."""
    testable: ClassVar[bool] = False
    """Whether editors offer a test of it alone, which they may begin without any input."""

    def __init_subclass__(cls) -> None:
        """Take the struct of parameters from the type argument of `Step` or `Entry`."""
        super().__init_subclass__()
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Parameters):
                    cls.parameters = cast("type[P]", argument)

    def faults(self, parameters: P) -> Iterable[Fault]:
        """What is wrong with parameters; a type that needs more than they know adds to it."""
        return parameters.faults()

    async def judge(self, tenant: str, parameters: P) -> Iterable[Fault]:
        """What whoever is given the constants says is wrong with them, before any run."""
        return ()


class Entry(Node[P]):
    """A node type that flows begin with."""

    group = Group.ENTRY

    def entered(self, parameters: P, given: Any) -> Any:
        """The output of the entry for what was `given`, by its trigger or by a test.

        Raises `NodeFailed` when it does not fit the parameters.
        """
        return given


class Chosen(NamedTuple):
    """What a step that forks puts out, and which way the run goes on."""

    handle: str | None
    """`sourceHandle` of the edges to follow; None ends the path."""
    output: Any


class Supposed(NamedTuple):
    """What a step puts out in a dry run where it would have asked others: a sample."""

    output: Any


class Step(Node[P]):
    """A node type that does something with what it is given."""

    testable = True
    repeatable: ClassVar[bool] = False
    """Whether doing it twice does no harm: a run that was interrupted begins anew only when all
    it has done is repeatable."""
    forks: ClassVar[bool] = False
    """Whether `run` gives `Chosen`."""
    commands: ClassVar[bool] = False
    """Whether it sets values or calls services: only users who may command let it run."""
    answers: ClassVar[bool] = False
    """Whether its output is what the run answers with, whatever finishes later."""

    def handles(self, parameters: P) -> Iterable[str]:
        """The handles that edges may begin at; a step that does not fork has none."""
        return ()

    def quick(self, parameters: P) -> bool:
        """Whether it waits for nobody but stores of ours, which take many at a time as one.

        Many more runs of flows that have no other nodes are let in (`engine.queue`).
        """
        return False

    def instant(self, parameters: P) -> bool:
        """Whether it waits for nobody at all and computes little: no deadline could end it."""
        return False

    @abstractmethod
    async def run(self, context: NodeContext, parameters: P, body: Any) -> Any:
        """Do the work and give the output, which the next nodes get as `body`; JSON values only.

        `body` is the output of the node before; of several (a join) their maps in one. A dry run
        gives `Supposed` where it cannot know. Raises `NodeFailed`; it is cancelled at the deadline.
        """


class EntityStep(Step[P]):
    """A step that asks `device` about entities."""

    group = Group.ACTION
    testable = False

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    async def latest(self, context: NodeContext, keys: list[str]) -> dict[str, Any]:
        """Return latest values by key, null for a write-only one, which the log of the run notes.

        Raises `NodeFailed` naming the entities that do not exist.
        """
        found = await self._entities.values(context.tenant, keys)
        missing = [key for key in keys if key not in found.values]
        if missing:
            raise NodeFailed(f"there is no entity {', '.join(missing[:5])}")
        if found.write_only:
            listed = ", ".join(found.write_only[:5])
            context.notes.append(f"{listed}: write-only, so that its value cannot be read")
        return {key: found.values[key] for key in keys}

    async def faults_of(self, field: str, dry_run: Awaitable[Any]) -> list[Fault]:
        """Return what a dry run is refused for, as a fault of a parameter.

        Only what is wrong with values: what is not there, or does not answer, may be by the time of
        a run.
        """
        try:
            await dry_run
        except InvalidInput as error:
            return [Fault(field, error.message)]
        except ThingwayError as error:
            log.info("constants of a flow are not judged: %s", error)
        return []


AnyNode = Node[Any]


class Registry:
    """The node types of a process by name."""

    def __init__(self, nodes: Iterable[AnyNode]) -> None:
        self._nodes: dict[str, AnyNode] = {}
        for node in nodes:
            if node.name in self._nodes:
                raise ValueError(f"two node types are called {node.name}")
            self._nodes[node.name] = node

    def find(self, name: str) -> AnyNode | None:
        """The node type of this name."""
        return self._nodes.get(name)

    def __iter__(self) -> Iterator[AnyNode]:
        return iter(self._nodes.values())
