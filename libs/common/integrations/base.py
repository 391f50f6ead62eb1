"""What an integration is to its host: a manifest and handlers."""

from libs.common.contracts.frames import CarryDownlinks
from libs.common.contracts.integrations import (
    AddDevice,
    CallService,
    DeviceCommand,
    DeviceRef,
    Manifest,
    NewDevice,
    PropertiesUpdated,
    ServiceResult,
)
from libs.common.errors import MethodNotAllowed
from libs.common.integrations.things import IntegrationThings


class Integration:
    """Base of integrations; override what the manifest promises.

    A handler refuses with an error of `libs.common.errors` (`InvalidInput` names the
    parameter); whoever asked gets it as it is. What it is asked may come twice when an
    answer was lost, so a handler that has done it already says so and not that it failed.
    """

    manifest: Manifest
    things: IntegrationThings
    """What it tells and asks of its devices and of itself; given by its host."""

    async def add_device(self, wanted: AddDevice) -> NewDevice:
        """Make ready for a device and say what it is; the platform stores it then."""
        raise MethodNotAllowed(f"integration {self.manifest.id} cannot add device!")

    async def delete_device(self, device: DeviceRef) -> None:
        """Let a device go; the platform removes it then."""

    async def call(self, wanted: CallService) -> ServiceResult:
        """Do what a service of the integration itself does."""
        raise MethodNotAllowed(f"integration {self.manifest.id} has no service that can be called")

    async def updated(self, change: PropertiesUpdated) -> None:
        """Hear that people changed properties of the integration."""

    async def command(self, wanted: DeviceCommand) -> None:
        """Carry a command to a device (`carries_commands`); its reply is told later."""
        raise MethodNotAllowed(f"integration {self.manifest.id} carries no commands")

    async def downlink(self, wanted: CarryDownlinks) -> None:
        """Queue bytes for a device (`carries_frames`); what becomes of them is told later."""
        raise MethodNotAllowed(f"integration {self.manifest.id} carries no frames")
