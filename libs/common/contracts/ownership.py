"""How `auth`, which keeps applications, has `device` give them devices and take them back."""

import msgspec

GIVE_DEVICE = "rpc.device.give_device"
TAKE_DEVICE = "rpc.device.take_device"


class GiveDevice(msgspec.Struct, rename="camel"):
    """`give_device`: a device of the users, or nobody's, is the application's from now on."""

    tenant: str
    device_id: int
    application_id: int
    application_name: str


class TakeDevice(msgspec.Struct, rename="camel"):
    """`take_device`: a device of the application is the users' from now on."""

    tenant: str
    device_id: int
    application_id: int
    user_id: int
    """Who takes it."""


class OwnedDevice(msgspec.Struct, rename="camel"):
    """Answer of both."""

    sn: str
    name: str
