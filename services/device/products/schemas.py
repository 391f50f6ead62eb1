"""Products on the wire."""

from typing import Annotated, Any

import msgspec

from libs.common.settings import Days
from libs.common.tsl import TslDocument
from services.device.things.fields import Name
from services.device.things.model import DeviceType

Prefixes = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=200)
]

FrameDays = Annotated[int, msgspec.Meta(ge=1, le=3660)]


class PutProduct(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT /products/{model}`; `tsl` is a document as vendors publish it."""

    name: Name
    tsl: dict[str, Any]
    sn_prefixes: Prefixes = []
    device_type: DeviceType = "COMMON"
    history_days: Days | None = None
    """Days that history of its devices is kept, where the platform and the tenant keep it as
    long."""
    frame_days: FrameDays | None = None
    """Days that frames of its devices are kept from when they come, to be read again."""
    device_offline_timeout: Annotated[int, msgspec.Meta(ge=1, le=2880)] | None = None
    """Minutes of silence after which a device that has no connection is OFFLINE; by default
    as the platform has it."""
    location_property: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    """A STRUCT of the TSL with the numbers `latitude` and `longitude`: where its devices say that
    they are."""


class Product(msgspec.Struct, rename="camel", kw_only=True):
    """A product without its documents; new devices get `current_version`. Times are ms."""

    model: str
    name: str
    sn_prefixes: list[str]
    device_type: DeviceType
    current_version: str
    versions: list[str]
    history_days: int | msgspec.UnsetType = msgspec.UNSET
    frame_days: int | msgspec.UnsetType = msgspec.UNSET
    device_offline_timeout: int | msgspec.UnsetType = msgspec.UNSET
    location_property: str | msgspec.UnsetType = msgspec.UNSET
    codec_version: str | msgspec.UnsetType = msgspec.UNSET
    """Of its codec, when it has one."""
    created_at: int | msgspec.UnsetType = msgspec.UNSET
    updated_at: int | msgspec.UnsetType = msgspec.UNSET


class ProductWithTsl(Product, kw_only=True):
    """A product with the document of its current version."""

    tsl: TslDocument


class ProductFault(msgspec.Struct):
    """What is wrong with a product, and where: `tsl.properties[0].dataSpec.validator.min`."""

    field: str
    reason: str


class ProductPage(msgspec.Struct, rename="camel"):
    """One page of the products of a tenant."""

    page_size: int
    page_number: int
    total: int
    content: list[Product]
