"""What writing and calling need of others, to be given or faked."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from libs.common.contracts.integrations import Integration
from libs.common.identity import Principal
from services.device.commands.model import Command, Draft
from services.device.entities.things import Entity
from services.device.things import Thing


class Keys(Protocol):
    """Finds entities by key, whoever may see them."""

    async def by_keys(self, tenant: str, keys: Iterable[str]) -> dict[str, Entity]:
        """The entities of `keys`; what is unknown is missing."""


class Devices(Protocol):
    """Finds the things of devices."""

    async def granted(self, tenant: str, device_ids: Sequence[int]) -> dict[int, Thing]:
        """The things of devices of a tenant, by id."""


class Directory(Protocol):
    """Finds things by what they report under."""

    async def by_sn(self, sns: Iterable[str]) -> dict[str, Thing]:
        """The things of `sns`."""


class Commands(Protocol):
    """Checks and issues commands."""

    async def check_properties(self, thing: Thing, properties: dict[str, Any]) -> Draft:
        """Check what a device is to take on."""

    def check_call(self, thing: Thing, service_id: str, inputs: dict[str, Any] | None) -> Draft:
        """Check a call of a service."""

    async def issue(self, principal: Principal, drafts: Sequence[Draft]) -> Sequence[Command]:
        """Write and send what was checked."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a thing has to report."""

    thing: Thing
    properties: dict[str, Any]
    hops: int
    """How many flows have led to it."""


class Speaker(Protocol):
    """Speaks for things that are no devices."""

    async def report(self, thing: Thing, properties: dict[str, Any]) -> None:
        """Report properties, and wait until they are stored."""

    async def report_all(self, said: Sequence[Said]) -> list[str | None]:
        """Report for several things and wait; tell of each why it was refused, or None."""


class Integrations(Protocol):
    """Knows the integrations."""

    async def find(self, integration: str) -> Integration | None:
        """One of them."""


class IntegrationCalls(Protocol):
    """Asks integrations."""

    async def updated(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Say that people changed properties of the integration."""

    async def entrust(
        self, integration: str, tenant: str, thing_id: int, properties: dict[str, Any]
    ) -> None:
        """Say the same with secrets among them; raises when it was not heard."""

    async def call(
        self, integration: str, tenant: str, thing_id: int, service: str, inputs: dict[str, Any]
    ) -> Mapping[str, Any]:
        """Call a service of the integration itself; its outputs."""


class FlowCalls(Protocol):
    """Asks for runs of flows."""

    async def call(
        self, tenant: str, flow_id: int, inputs: dict[str, Any], user_id: int
    ) -> Mapping[str, Any]:
        """Run a flow; its last output."""


class Outcomes(Protocol):
    """Hears what became of commands; made before the command, so that nothing is missed."""

    async def of(self, command: Command) -> Mapping[str, Any]:
        """The outputs of a call; raises `UpstreamTimeout`, or `UpstreamFailed` as refused."""


class Replies(Protocol):
    """Listens to what devices answer."""

    def listening(
        self, tenant: str, device_ids: Iterable[int]
    ) -> AbstractAsyncContextManager[Outcomes]:
        """Listen while the block runs."""
