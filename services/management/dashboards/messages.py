"""What other services ask about dashboards: `rpc.management.…`."""

from libs.common.bus import RpcServer
from libs.common.contracts.names import DescribeDashboards
from services.management.dashboards.service import DashboardService


def offer_dashboards(rpc: RpcServer, service: DashboardService) -> None:
    """Offer the operations on dashboards."""
    rpc.offer("describe_dashboards", DescribeDashboards, service.describe)
