"""The one interface of all node types.

A node type is a class with a name, a group, a struct of parameters and either `run` (`Step`)
or `entered` (`Entry`). One instance serves all flows of a process: it keeps nothing between
runs but its collaborators, which arrive in its constructor (`app.py` makes them).

A parameter struct is `Parameters`: msgspec checks its types and bounds, `faults` what types
cannot say, and `parameter(...)` says how an editor shows a field; the catalogue is made from
it. Values may be references (`expressions.references`) wherever the field is not among
`verbatim`; `context.resolve` replaces them, when the node runs.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from services.workflow.errors import NodeFailed, NotKnown
from services.workflow.expressions.references import (
    Reference,
    ReferenceInvalid,
    ReferenceMissing,
    as_text,
    references_in,
    resolve,
)
from services.workflow.owner import Owner

MARGIN = 0.05
"""Seconds that a node keeps for saying that what it asked was late."""


class Group(StrEnum):
    """Where an editor's palette shows a node type."""

    ENTRY = "entry"
    CONTROL = "control"
    ACTION = "action"
    EXTERNAL = "external"


class Fault(NamedTuple):
    """What is wrong with a parameter, and what to do about it."""

    field: str
    """`timerSettings.timezone`."""
    reason: str


class Code(NamedTuple):
    """A piece of code in a parameter."""

    field: str
    language: str
    """`js` or `python`, in any of its spellings."""
    text: str
    names: Sequence[str]
    """Its variables."""


class Parameters(msgspec.Struct, rename="camel", kw_only=True):
    """Base of the parameters of node types, as designs have them."""

    verbatim: ClassVar[frozenset[str]] = frozenset()
    """Fields (as designs spell them) whose texts hold no references, such as program code."""

    secrets_go_to: ClassVar[tuple[str, ...]] = ()
    """The way to the field that says what secrets are sent to (a host, a URL); nothing when they
    are sent nowhere. With another one there, they have to be typed again."""

    def faults(self) -> Iterable[Fault]:
        """What types and bounds cannot say; nothing when all is well."""
        return ()

    def references(self) -> Iterable[tuple[str, Reference]]:
        """References in `verbatim` fields that hold some, each with its field."""
        return ()

    def code(self) -> Iterable[Code]:
        """Code of people, which has to be readable before it may run."""
        return ()

    def entity_keys(self) -> Iterable[str]:
        """The entities that the node touches: whoever lets the flow run must see them.

        A key may be a pattern with `*`, which stands for any characters.
        """
        return ()


def parameter(
    title: str,
    description: str = "",
    *,
    ui: str = "",
    ui_group: str = "",
    secret: bool = False,
    output: bool = False,
    **bounds: Any,
) -> msgspec.Meta:
    """How an editor shows a field: `Annotated[str, parameter("URL", max_length=1000)]`.

    `ui` is a component that existing editors have. A `secret` is kept encrypted and not shown
    again (`services.workflow.vault`). With `output` it declares what the node puts out, and an
    editor shows it there. `bounds` are those of `msgspec.Meta`.
    """
    extra = {"ui": ui, "uiGroup": ui_group, "secret": secret, "output": output}
    return msgspec.Meta(title=title, description=description, extra=extra, **bounds)


P = TypeVar("P", bound=Parameters)


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

        Many more runs of flows that have no other nodes are let in (`engine.limits`).
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
