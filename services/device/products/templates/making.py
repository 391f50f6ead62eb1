"""What a product is that is made of a template. No I/O."""

import msgspec

from libs.common.tsl import to_wire
from services.device.codecs.templates import Template
from services.device.lorawan.schemas import PutCodec
from services.device.things.product_model import Product, ProductCodec, PutProduct

SILENCE = 1440
"""Minutes without an uplink after which a new product's devices are OFFLINE: sensors sleep."""


def product_of(template: Template, name: str, known: Product | None) -> PutProduct:
    """The body of a product: one that is there keeps all but its TSL."""
    tsl = to_wire(template.document)
    if known is None:
        return PutProduct(name=name, tsl=tsl, device_offline_timeout=SILENCE)
    fields = {one: getattr(known, one, msgspec.UNSET) for one in PutProduct.__struct_fields__}
    kept = {one: value for one, value in fields.items() if value is not msgspec.UNSET}
    return PutProduct(**kept | {"tsl": tsl})


def codec_of(template: Template) -> PutCodec:
    """The body of its codec."""
    codec = template.codec
    return PutCodec(scripts=codec.scripts, decoder=codec.decoder, encoder=codec.encoder)


def warning_of(codec: ProductCodec) -> str | None:
    """What is wrong with how a codec asks devices for what they remember."""
    asked = codec.history
    if asked is None or asked.fault is None:
        return None
    return f"devices are not asked for their history: {asked.service} {asked.fault}"
