"""Products and their codecs, as they are stored."""

from base64 import b64decode
from typing import Annotated, Any

import msgspec

from libs.common.errors import InvalidInput
from libs.common.settings import Days
from libs.common.tsl import TslDocument
from services.device.things.codec_model import LARGEST_PORT, MOST_BYTES, Codec, Step
from services.device.things.model import DeviceType
from services.device.things.schemas import Name

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


MOST_EXAMPLES = 32
Port = Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PORT)]
Hex = Annotated[str, msgspec.Meta(pattern="^([0-9A-Fa-f]{2})*$", max_length=2 * MOST_BYTES)]
Base64 = Annotated[str, msgspec.Meta(max_length=4 * MOST_BYTES // 3 + 3)]


class CodecFrame(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Bytes that came to a port, in one of two spellings."""

    port: Port
    hex: Hex | None = None
    base64: Base64 | None = None

    def content(self, above: str = "") -> bytes:
        """The bytes; raise `InvalidInput` with the field, which stands in `above`."""
        if (self.hex is None) == (self.base64 is None):
            raise InvalidInput("either hex or base64 is needed", field=f"{above}hex")
        try:
            return bytes.fromhex(self.hex or "") or b64decode(self.base64 or "", validate=True)
        except ValueError as error:
            raise InvalidInput("must be base64", field=f"{above}base64") from error


class CodecExample(CodecFrame, kw_only=True):
    """A frame on which a codec is tried, and the properties that it should give, if told."""

    expected: dict[str, Any] | None = None


class HistoryRequest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The service with which a device can be asked for what it remembers of a range."""

    service: str
    fault: str | None = None
    """What is wrong with its bytes: then nothing is asked by it."""


class ProductCodec(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The codec of a product; another content has another `version`.

    `history` is how its devices can be asked for what they remember, if at all.
    """

    version: str
    scripts: dict[str, str]
    decoder: list[Step]
    encoder: list[Step]
    examples: list[CodecExample]
    history: HistoryRequest | None = None


def codec_of(stored: ProductCodec) -> Codec:
    """What runs of a codec that is kept."""
    return Codec(scripts=stored.scripts, decoder=stored.decoder, encoder=stored.encoder)


class PutHealing(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Body of `PUT …/codec/healing`: whether devices are asked for what never arrived."""

    on: bool
    hour: Annotated[int, msgspec.Meta(ge=1, le=60)] = 2
    """Requests to one device within an hour."""
    day: Annotated[int, msgspec.Meta(ge=1, le=500)] = 10
    """The same within 24 hours."""
