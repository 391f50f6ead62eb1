"""The wiring of members, things of integrations and device keys."""

from dataclasses import dataclass

from services.device.clients import Clients
from services.device.members.device_keys import DeviceCredentialsClient, FirstKeyReader
from services.device.members.directory import EntityDirectory, MemberSetDirectory
from services.device.members.integration_things import IntegrationThings
from services.device.things.specifications import MemberRegistry
from services.device.things.wiring import ThingsPackage


@dataclass(frozen=True, kw_only=True)
class MembersPackage:
    """The members of things, things of integrations, and keys of devices."""

    member_sets: MemberSetDirectory
    directory: EntityDirectory
    integration_things: IntegrationThings
    credentials: DeviceCredentialsClient
    first_keys: FirstKeyReader


def wire_members(clients: Clients, *, things: ThingsPackage) -> MembersPackage:
    """Construct the directory of entities and the clients for device keys."""
    database = clients.mongo.database
    member_sets = MemberSetDirectory(database, things.specifications)
    credentials = DeviceCredentialsClient(clients.rpc)
    return MembersPackage(
        member_sets=member_sets,
        directory=EntityDirectory(things.devices, things.directory, member_sets),
        integration_things=IntegrationThings(
            clients.integrations, things.thing_store, MemberRegistry(database), things.ids
        ),
        credentials=credentials,
        first_keys=FirstKeyReader(credentials, things.granted_devices),
    )
