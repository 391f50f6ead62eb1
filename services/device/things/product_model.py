"""Products and their codecs as they are stored."""

from base64 import b64decode
from typing import Annotated, Any

import msgspec

from libs.common.errors import InvalidInput
from libs.common.settings import Days
from libs.common.tsl import TslDocument
from services.device.things.codec_model import MAX_FRAME_BYTES, MAX_LORAWAN_PORT, Codec, CodecStep
from services.device.things.model import DeviceType
from services.device.things.schemas import Name

SerialPrefixes = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=64)]], msgspec.Meta(max_length=200)
]

FrameDays = Annotated[int, msgspec.Meta(ge=1, le=3660)]


class PutProduct(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT /products/{model}`; `tsl` is a document as vendors publish it."""

    name: Name
    tsl: dict[str, Any]
    sn_prefixes: SerialPrefixes = []
    device_type: DeviceType = "COMMON"
    history_days: Days | None = None
    """Days that history of its devices is kept, at most as long as the platform and the tenant keep
    it."""
    frame_days: FrameDays | None = None
    """Days that frames of its devices are kept to be decoded again, from their arrival."""
    device_offline_timeout: Annotated[int, msgspec.Meta(ge=1, le=2880)] | None = None
    """Minutes without a message after which a device without a connection is OFFLINE; by default
    the setting of the platform."""
    location_property: Annotated[str, msgspec.Meta(min_length=1, max_length=128)] | None = None
    """A STRUCT of the TSL with the numbers `latitude` and `longitude`: the location that devices
    report."""


class Product(msgspec.Struct, rename="camel", kw_only=True):
    """A product without its thing specification (TSL)."""

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
    created_at: int | msgspec.UnsetType = msgspec.UNSET
    updated_at: int | msgspec.UnsetType = msgspec.UNSET


class ProductWithTsl(Product, kw_only=True):
    """A product with the TSL of its current version."""

    tsl: TslDocument


class ProductFault(msgspec.Struct):
    """A fault of a product and its place: `tsl.properties[0].dataSpec.validator.min`."""

    field: str
    reason: str


class ProductPage(msgspec.Struct, rename="camel"):
    """One page of the products of a tenant."""

    page_size: int
    page_number: int
    total: int
    content: list[Product]


MAX_EXAMPLES = 32
Port = Annotated[int, msgspec.Meta(ge=1, le=MAX_LORAWAN_PORT)]
Hex = Annotated[str, msgspec.Meta(pattern="^([0-9A-Fa-f]{2})*$", max_length=2 * MAX_FRAME_BYTES)]
Base64 = Annotated[str, msgspec.Meta(max_length=4 * MAX_FRAME_BYTES // 3 + 3)]


class CodecFrame(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The bytes of a frame, as `hex` or as `base64`, and its port."""

    port: Port
    hex: Hex | None = None
    base64: Base64 | None = None

    def content(self, above: str = "") -> bytes:
        """Return the bytes; raise `InvalidInput` whose field begins with `above`."""
        if (self.hex is None) == (self.base64 is None):
            raise InvalidInput("give either hex or base64", field=f"{above}hex")
        try:
            return bytes.fromhex(self.hex or "") or b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise InvalidInput("must be base64", field=f"{above}base64") from error


class CodecExample(CodecFrame, kw_only=True):
    """A frame to test a codec with and, if given, the properties that it must return."""

    expected: dict[str, Any] | None = None
    """Expected values by property key."""


class HistoryRequest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The service that asks a device for its stored readings of a period."""

    service: str
    """Id of the service."""
    fault: str | None = None
    """Why the codec cannot encode the request. Devices then get no requests."""


class ProductCodec(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The codec of a product; `version` identifies its content.

    `history` is the service that asks devices for their stored readings, if the codec has one.
    """

    version: str
    """Hash of the content."""
    scripts: dict[str, str]
    decoder: list[CodecStep]
    encoder: list[CodecStep]
    examples: list[CodecExample]
    history: HistoryRequest | None = None
    """Service that requests stored readings."""


def extract_codec(stored: ProductCodec) -> Codec:
    """Return the scripts and steps of a stored codec."""
    return Codec(scripts=stored.scripts, decoder=stored.decoder, encoder=stored.encoder)


class PutGapHealing(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT …/codec/healing`: whether devices are asked for missing readings."""

    on: bool
    """Whether devices are asked for missing readings."""
    hour: Annotated[int, msgspec.Meta(ge=1, le=60)] = 2
    """Maximum requests to one device within an hour."""
    day: Annotated[int, msgspec.Meta(ge=1, le=500)] = 10
    """Maximum requests to one device within 24 hours."""
