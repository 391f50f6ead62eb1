"""Construction of the stores and services of flows."""

from collections.abc import Sequence
from dataclasses import dataclass

from libs.common.contracts.access import ResourceType
from libs.common.contracts.names import DescribeFlows
from libs.common.identity.grants import ResourceTypeGrants
from libs.common.identity.users import UserNames
from libs.common.store.ids import IdAllocator
from services.workflow.clients import Clients
from services.workflow.entities import EntityAccess
from services.workflow.flows.deployment import FlowDeployer, FlowSettler
from services.workflow.flows.logs import LogService
from services.workflow.flows.model import DeploymentObserver
from services.workflow.flows.service import FlowService
from services.workflow.flows.store import FlowStore, UnsettledStore
from services.workflow.nodes.wiring import NodeTypes
from services.workflow.runs.store import RunStore
from services.workflow.vault import SecretStore, Vault

FLOW_IDS_PER_ALLOCATION = 100
"""Ids allocated at a time. A restart wastes at most this many."""


@dataclass(frozen=True)
class Flows:
    """The parts of flows that other packages use."""

    store: FlowStore
    runs: RunStore
    vault: Vault
    deployer: FlowDeployer
    service: FlowService
    logs: LogService
    settler: FlowSettler


def wire_flows(
    clients: Clients, *, nodes: NodeTypes, store: FlowStore, triggers: Sequence[DeploymentObserver]
) -> Flows:
    """Construct the package, and offer `describe_flows` on the bus."""
    database, runs = clients.mongo.database, RunStore(clients.mongo, clients.outbox)
    unsettled, secrets = UnsettledStore(database), SecretStore(database)
    vault = Vault(secrets, nodes.registry, clients.settings.secrets_key)
    access = EntityAccess(clients.grants, nodes.entities)
    deployer = FlowDeployer(nodes.registry, nodes.external.sandbox, access, vault, triggers)
    service = FlowService(
        store=store,
        unsettled=unsettled,
        secrets=secrets,
        runs=runs,
        vault=vault,
        deployer=deployer,
        sharing=ResourceTypeGrants(clients.rpc, clients.grants, ResourceType.WORKFLOW),
        user_names=UserNames(clients.rpc),
        limits=clients.limits.get,
        ids=IdAllocator(database, "flows", FLOW_IDS_PER_ALLOCATION),
    )
    clients.server.offer("describe_flows", DescribeFlows, service.describe)
    logs = LogService(service, runs, nodes.entities)
    settler = FlowSettler(unsettled, store, deployer, nodes.entities)
    return Flows(store, runs, vault, deployer, service, logs, settler)
