"""`/product-template` and `/blueprint-library-setting`: templates, and where they come from."""

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody

from libs.common.errors import InvalidInput
from libs.common.http import Requester
from libs.common.http.console import Page, get, post
from libs.common.http.guards import holders
from libs.common.identity.functions import Function
from services.device.registry.products.templates import (
    NOT_READ,
    BlueprintSource,
    FindTemplates,
    ImportedTemplate,
    ImportTemplates,
    SetBlueprintSource,
    ShownTemplate,
    Templates,
)

_VIEWERS = [holders(Function.PRODUCT_VIEW, Function.PRODUCT_MANAGE, Function.DEVICE_ADD)]
_MANAGERS = [holders(Function.PRODUCT_MANAGE)]
_EDITORS = (Function.CREDENTIALS_EDIT, Function.PRODUCT_MANAGE)
Library = NamedDependency[Templates]


@get(guards=[holders(Function.CREDENTIALS_VIEW, Function.PRODUCT_VIEW, *_EDITORS)])
async def get_blueprint_source(principal: Requester, templates: Library) -> BlueprintSource:
    """The library of device templates that was uploaded last; `DEFAULT` when there is none."""
    library = await templates.source(principal.tenant)
    if library is None:
        return BlueprintSource(current_source_type="DEFAULT", synced_success=True)
    return BlueprintSource(
        current_source_type="UPLOAD",
        synced_success=True,
        type="ZIP",
        url=library.url,
        file_name=library.file_name,
        version=library.version,
        update_time=library.updated_at,
    )


@post(guards=[holders(*_EDITORS)], example={"source_type": "DEFAULT"}, waits=True)
async def set_blueprint_source(
    principal: Requester, templates: Library, data: JSONBody[SetBlueprintSource]
) -> None:
    """Take a ZIP of device templates (5 MB) that was uploaded; `DEFAULT` forgets the one there is.

    Products that were made of templates stay as they are.
    """
    if data.source_type == "DEFAULT":
        await templates.drop(principal.tenant)
        return
    if data.type == "GITHUB":
        raise InvalidInput("must be ZIP: nothing is fetched", field="type", code=NOT_READ)
    if not data.url:
        raise InvalidInput("is needed", field="url", code=NOT_READ)
    await templates.take(principal.tenant, data.url)


@post("/search", guards=_VIEWERS, example={"page_size": 100})
async def find_product_templates(
    principal: Requester, templates: Library, data: JSONBody[FindTemplates | None] = None
) -> Page[ShownTemplate]:
    """The templates of the library, with what is wrong with them; always a page."""
    wanted = data or FindTemplates()
    rows, total = await templates.find(principal.tenant, wanted)
    return Page(page_size=wanted.size, page_number=wanted.number, total=total, content=rows)


@post("/import", guards=_MANAGERS, example={"models": ["AM102"]}, waits=True)
async def import_product_templates(
    principal: Requester, templates: Library, data: JSONBody[ImportTemplates]
) -> list[ImportedTemplate]:
    """Make products with codecs of templates, or make them anew: one result for each, in order.

    A product that is there keeps all but its TSL and codec.
    """
    return await templates.make(principal, data.models)


SETTING_ROUTER = Router(
    "/blueprint-library-setting",
    route_handlers=[get_blueprint_source, set_blueprint_source],
    tags=["Settings"],
)
ROUTER = Router(
    "/product-template",
    route_handlers=[find_product_templates, import_product_templates],
    tags=["Products"],
)
