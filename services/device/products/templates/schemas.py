"""Templates and where they come from, on the wire and as kept."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from libs.common.http.console import PageRequest, Shown
from libs.common.tsl import Fault
from services.device.codecs.libraries import MOST_MODELS, TemplateRef
from services.device.things.product_model import ProductFault

MOST_IMPORTED = 20
MOST_FAULTS = 5
"""Of a template; when they are mended there may be more."""
Model = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]


class BlueprintSource(Shown, kw_only=True):
    """Answer of `GET /blueprint-library-setting`; `DEFAULT` has no templates. Times are ms."""

    current_source_type: Literal["DEFAULT", "UPLOAD"]
    synced_success: bool
    type: Literal["ZIP"] | None = None
    url: str | None = None
    """What it was taken from: an upload that may be over."""
    file_name: str | None = None
    version: str | None = None
    update_time: int | None = None


class SetBlueprintSource(msgspec.Struct):
    """Body of `POST /blueprint-library-setting`; `url` is the `resource_url` of an upload."""

    source_type: Literal["DEFAULT", "UPLOAD"]
    type: Literal["ZIP", "GITHUB"] | None = None
    url: Annotated[str, msgspec.Meta(max_length=1024)] | None = None


class FindTemplates(PageRequest, kw_only=True):
    """Body of `POST /product-template/search`: by model, with a part of model, name or vendor."""

    largest = MOST_MODELS
    keyword: Annotated[str, msgspec.Meta(max_length=128)] = ""


class ShownTemplate(msgspec.Struct, kw_only=True):
    """A template of the library; one with faults cannot be imported."""

    model: str
    """Of the product that is made of it."""
    name: str
    vendor: str
    imported: bool
    """Whether there is a product of the model."""
    faults: list[ProductFault]


class ImportTemplates(msgspec.Struct):
    """Body of `POST /product-template/import`."""

    models: Annotated[list[Model], msgspec.Meta(min_length=1, max_length=MOST_IMPORTED)]


class ImportedTemplate(Shown, kw_only=True):
    """What became of a template: a product with its codec, unless there are `faults`."""

    model: str
    faults: list[ProductFault]
    warning: str | None = None
    """Why its devices are not asked for what they remember."""


class KeptTemplate(msgspec.Struct, frozen=True):
    """A template of a library, and what was wrong with it when the library was taken."""

    ref: TemplateRef
    faults: list[ProductFault]


class KeptLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """The library of a tenant, without the archive."""

    url: str
    file_name: str
    version: str
    updated_at: int
    """ms."""
    templates: list[KeptTemplate]


def shown(faults: Sequence[Fault]) -> list[ProductFault]:
    """The first faults, as they are kept and answered."""
    return [ProductFault(one.path[:300], one.reason[:500]) for one in faults[:MOST_FAULTS]]
