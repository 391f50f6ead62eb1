"""Which integrations there are: announced, checked, and forgotten when they fall silent."""

from libs.common.contracts.integrations import (
    Acknowledged,
    GetIntegrations,
    KnownIntegrations,
    Manifest,
)
from libs.common.errors import Forbidden, InvalidInput
from libs.common.tsl import TslDocument, TslInvalid
from services.management.integrations.store import IntegrationStore


def tsl_of(manifest: Manifest) -> TslDocument:
    """The manifest's TSL; raise `InvalidInput` naming every fault."""
    try:
        return manifest.document()
    except TslInvalid as error:
        raise InvalidInput(f"tsl: {error}", field="tsl") from error


class Registry:
    """Takes announcements and answers who is there."""

    def __init__(self, store: IntegrationStore) -> None:
        self._store = store

    async def announce(self, who: str, manifest: Manifest) -> Acknowledged:
        """Take the announcement of `who`, the id its login may speak for.

        Raises `Forbidden` for another's manifest, `InvalidInput` for one that does not hold
        together: a broken TSL, or an add or delete service that its TSL does not have.
        """
        if manifest.id != who:
            raise Forbidden(f"{who} cannot announce {manifest.id}", field="id")
        services = {service.id: service.inputs for service in tsl_of(manifest).services}
        for field in ("add_device_service", "delete_device_service"):
            service = getattr(manifest, field)
            if service is not None and service not in services:
                raise InvalidInput(f"the TSL has no service {service!r}", field=field)
        named = manifest.identifier_input
        inputs = services.get(manifest.add_device_service or "", [])
        if named is not None and named not in {one.id.rpartition(".")[2] for one in inputs}:
            raise InvalidInput(f"the add service has no input {named!r}", field="identifier_input")
        await self._store.announced(manifest)
        return Acknowledged()

    async def known(self, _: GetIntegrations | None = None) -> KnownIntegrations:
        """Every integration, hidden and silent ones too."""
        return KnownIntegrations(list(await self._store.all()))

    async def present(self) -> list[Manifest]:
        """The integrations that people may see: there now, and not hidden."""
        return [
            one.manifest for one in await self._store.all() if one.alive and not one.manifest.hidden
        ]

    async def find(self, integration: str) -> Manifest | None:
        """One that people may see."""
        found = (one for one in await self.present() if one.id == integration)
        return next(found, None)
