"""What other services ask about devices."""

from libs.common.bus import RpcServer
from libs.common.contracts.names import CountDevices, DescribeDevices
from services.device.names.service import DeviceNames


def offer_names(rpc: RpcServer, names: DeviceNames) -> None:
    """Offer the operations as `rpc.device.…`."""
    rpc.offer("describe_devices", DescribeDevices, names.describe)
    rpc.offer("count_devices", CountDevices, names.count)
