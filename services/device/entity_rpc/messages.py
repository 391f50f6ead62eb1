"""`rpc.device.{entity_values|update_entities|call_service}`."""

from libs.common.bus import RpcServer
from libs.common.contracts.entities import CallServices, ReadEntities, UpdateEntities
from services.device.entity_rpc.service import EntityRpc


def offer_entity_values(rpc: RpcServer, service: EntityRpc) -> None:
    """Offer what other services do with entities."""
    rpc.offer("entity_values", ReadEntities, service.read)
    rpc.offer("update_entities", UpdateEntities, service.update)
    rpc.offer("call_service", CallServices, service.call)
