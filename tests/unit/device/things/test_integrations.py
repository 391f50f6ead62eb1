"""Which integrations there are, and that their own things are there when they are needed."""

from collections.abc import Iterable, Mapping
from typing import Any
from unittest import mock

from libs.common.contracts.integrations import Integration, KnownIntegrations, Manifest
from libs.common.errors import Unavailable, UpstreamFailed
from libs.common.integrations.client import Integrations
from services.device.members.integration_things import IntegrationThings


def one(name: str, *, alive: bool = True, **fields: Any) -> Integration:
    return Integration(Manifest(id=name, name=name, **fields), alive)


class FakeRpc:
    """Answers as `management` does, and counts."""

    def __init__(self, *integrations: Integration) -> None:
        self.integrations = list(integrations)
        self.asked = 0

    async def call(self, subject: str, request: Any, answer: Any) -> KnownIntegrations:
        self.asked += 1
        return KnownIntegrations(list(self.integrations))


class Known:
    """Knows what it is told."""

    def __init__(self, *integrations: Integration) -> None:
        self.integrations: list[Integration] | None = list(integrations)

    async def list_expected(self, integrations: Iterable[str]) -> Mapping[str, Integration]:
        if self.integrations is None:
            raise Unavailable("management is away")
        return {found.manifest.id: found for found in self.integrations}


class Maker(IntegrationThings):
    """Remembers what it is to make."""

    def __init__(self, known: Known) -> None:
        super().__init__(known, mock.Mock(), mock.Mock(), mock.Mock())  # type: ignore[arg-type]
        self.made: list[tuple[str, str]] = []

    async def ensure(self, tenant: str, manifest: Manifest) -> dict[str, Any]:
        if manifest.tsl == {"broken": True}:
            raise UpstreamFailed("broken")
        self.made.append((tenant, manifest.id))
        return {}


async def test_an_unknown_integration_is_requested_again() -> None:
    """An answer is valid for two seconds, unless the integration may be new."""
    rpc = FakeRpc(one("a"), one("silent", alive=False))
    known = Integrations(rpc)  # type: ignore[arg-type]
    assert await known.find("a") == await known.find("a")
    assert rpc.asked == 1
    assert await known.find("new") is None
    rpc.integrations = [one("a"), one("new"), one("silent")]
    assert (await known.find("new"), rpc.asked) == (one("new"), 3)
    assert (await known.find("silent"), rpc.asked) == (one("silent"), 3)


async def test_own_things_are_made_once_and_with_each_manifest() -> None:
    """In every tenant that looks; never those of integrations that are hidden or silent."""
    known = Known(one("a"), one("b", hidden=True), one("c", alive=False))
    things = Maker(known)
    for tenant in ("t", "t", "u"):
        await things.ensure_for_tenant(tenant)
    assert things.made == [("t", "a"), ("u", "a")]
    known.integrations = [one("a", version="2"), one("d")]
    await things.ensure_for_tenant("t")
    assert things.made[2:] == [("t", "a"), ("t", "d")]


async def test_a_failure_of_one_integration_does_not_affect_others() -> None:
    """A broken TSL affects its integration only.

    Without `management`, the last known ones remain.
    """
    known = Known(one("a", tsl={"broken": True}), one("b"))
    things = Maker(known)
    await things.ensure_for_tenant("t")
    assert things.made == [("t", "b")]
    known.integrations = None
    await things.ensure_for_tenant("t")
    assert things.made == [("t", "b")]
