"""What is asked about device credentials."""

from libs.common.bus import RpcServer
from libs.common.contracts.auth import (
    DeviceCertificate,
    DeviceCertificateRef,
    DeviceLogin,
    DeviceRef,
    FirstKeyWanted,
    ListDeviceCertificates,
)
from services.auth.devices.service import DeviceService


def offer_devices(rpc: RpcServer, service: DeviceService) -> None:
    """Offer the operations on device credentials as `rpc.auth.…`."""
    rpc.offer("issue_device_credentials", DeviceRef, service.issue)
    rpc.offer("issue_first_device_credentials", FirstKeyWanted, service.issue_first)
    rpc.offer("revoke_device_credentials", DeviceRef, service.revoke)
    rpc.offer("last_refused_login", DeviceRef, service.last_refused)
    rpc.offer("check_device", DeviceLogin, service.check)
    rpc.offer("check_device_certificate", DeviceCertificateRef, service.check_certificate)
    rpc.offer("add_device_certificate", DeviceCertificate, service.add_certificate)
    rpc.offer("revoke_device_certificate", DeviceCertificateRef, service.revoke_certificate)
    rpc.offer("list_device_certificates", ListDeviceCertificates, service.list_certificates)
