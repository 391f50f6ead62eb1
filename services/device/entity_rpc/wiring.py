"""Puts together what other services do with entities."""

from libs.common.bus import Bus, PlainRpcServer
from services.device.entities.directory import EntityDirectory
from services.device.entities.values import EntityValues
from services.device.entity_rpc.messages import offer_entity_values
from services.device.entity_rpc.service import Caller, EntityRpc, Writer


def entity_rpc(
    bus: Bus, directory: EntityDirectory, values: EntityValues, writer: Writer, caller: Caller
) -> PlainRpcServer:
    """Make the server; a call that waits for a device keeps no other request waiting in it."""
    rpc = PlainRpcServer(bus, "device")
    offer_entity_values(rpc, EntityRpc(directory, values, writer, caller))
    return rpc
