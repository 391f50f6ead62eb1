"""The wiring of the members of things."""

from dataclasses import dataclass

from services.device.members.device_keys import CredentialsOverRpc, FirstKeys
from services.device.members.directory import EntityDirectory, Models
from services.device.members.integration_things import IntegrationThings
from services.device.settings import Clients
from services.device.things.specifications import MemberRegistry
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class MembersPackage:
    """The members of things, things of integrations, and keys of devices."""

    models: Models
    directory: EntityDirectory
    integration_things: IntegrationThings
    credentials: CredentialsOverRpc
    first_keys: FirstKeys


def wire_members(clients: Clients, *, things: ThingsPackage) -> MembersPackage:
    """Construct the directory of members and the keys of devices."""
    database = clients.mongo.database
    models = Models(database, things.specifications)
    credentials = CredentialsOverRpc(clients.rpc)
    return MembersPackage(
        models=models,
        directory=EntityDirectory(things.devices, things.directory, models),
        integration_things=IntegrationThings(
            clients.integrations, things.thing_store, MemberRegistry(database), things.ids
        ),
        credentials=credentials,
        first_keys=FirstKeys(credentials, things.granted_devices),
    )
