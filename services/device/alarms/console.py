"""`/alarms` and `/alarm-rules`: alarms on the console."""

from typing import Annotated

from litestar import Router
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream

from libs.common.http import HttpRequest, Requester, principal_of
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import holders
from libs.common.http.ids import Id, PathId
from libs.common.http.streaming import Streamed
from libs.common.identity.functions import Function
from libs.common.tsl.limits import MAX_TS
from services.device.alarms.rules import AlarmRules
from services.device.alarms.schemas import (
    AlarmNumbers,
    ClaimAlarms,
    ClearAlarms,
    PutRule,
    RuleRef,
    SearchAlarms,
    SearchRules,
    ShownAlarm,
    ShownRule,
)
from services.device.alarms.service import Alarms

Rules = NamedDependency[AlarmRules]

READERS = holders(Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)
EDITORS = holders(Function.DEVICE_EDIT)
RULE = {
    "name": "Too hot",
    "severity": "MAJOR",
    "product": "ROOF-1",
    "condition": {
        "type": "VALUE",
        "property": "temperature",
        "comparison": "GT",
        "threshold": 30,
        "hysteresis": 2,
        "seconds": 60,
    },
}
Time = Annotated[int | None, QueryParameter(ge=0, le=MAX_TS, description="ms since 1970")]
MOST_NAMED = 1000
"""Devices that a query string names."""


@post(
    "/search",
    guards=[READERS],
    example={"keyword": "", "open": True, "page_size": 10, "page_number": 1},
)
async def search_alarms(
    principal: Requester,
    alarms: NamedDependency[Alarms],
    data: JSONBody[SearchAlarms | None] = None,
) -> Streamed[Page[ShownAlarm]]:
    """The alarms of the devices that the caller sees, the newest first; always a page."""
    return await alarms.search(principal, data or SearchAlarms())


@post("/count", guards=[READERS], example={"open": True})
async def count_alarms(
    principal: Requester,
    alarms: NamedDependency[Alarms],
    data: JSONBody[SearchAlarms | None] = None,
) -> AlarmNumbers:
    """How many alarms a search would find, and how many of them are open or unclaimed."""
    return await alarms.count(principal, data or SearchAlarms())


@post("/claim", guards=[EDITORS], example={"alarm_ids": []})
async def claim_alarms(
    principal: Requester, alarms: NamedDependency[Alarms], data: JSONBody[ClaimAlarms]
) -> None:
    """Say that the caller looks at alarms: all of a device that nobody has claimed, or some."""
    await alarms.claim(principal, data)


@post("/clear", guards=[EDITORS], example={"alarm_ids": []})
async def clear_alarms(
    principal: Requester, alarms: NamedDependency[Alarms], data: JSONBody[ClearAlarms]
) -> None:
    """End alarms by hand; a rule raises the next one when it was over meanwhile."""
    await alarms.clear(principal, data)


@get("/export", guards=[READERS], media_type="text/csv")
async def export_alarms(
    request: HttpRequest,
    alarms: NamedDependency[Alarms],
    keyword: Annotated[str | None, QueryParameter(max_length=512)] = None,
    device_ids: Annotated[
        list[Id] | None,
        QueryParameter(max_items=MOST_NAMED, description="Each as a parameter of its own"),
    ] = None,
    start_timestamp: Time = None,
    end_timestamp: Time = None,
    alarm_status: Annotated[
        list[bool] | None, QueryParameter(max_items=2, description="True: not claimed")
    ] = None,
    timezone: Annotated[
        str, QueryParameter(max_length=64, description="IANA name of that of the times")
    ] = "UTC",
) -> Stream:
    """CSV: the alarms that a search finds, the newest first; at most 100,000."""
    wanted = SearchAlarms(
        keyword=keyword,
        device_ids=list(device_ids or []),
        start_timestamp=start_timestamp,
        end_timestamp=end_timestamp,
        alarm_status=alarm_status,
    )
    lines = await alarms.export(principal_of(request), wanted, timezone)
    headers = {"Content-Disposition": "attachment; filename=Alarms.csv"}
    return Stream(lines, media_type="text/csv", headers=headers)


@post("/search", guards=[READERS], example={"keyword": "hot", "page_size": 10, "page_number": 1})
async def search_alarm_rules(
    principal: Requester, alarm_rules: Rules, data: JSONBody[SearchRules | None] = None
) -> Page[ShownRule]:
    """The rules of devices that the caller sees; of products for who sees all devices."""
    return await alarm_rules.search(principal, data or SearchRules())


@get("/{rule_id:str}", guards=[READERS])
async def get_alarm_rule(principal: Requester, alarm_rules: Rules, rule_id: PathId) -> ShownRule:
    """One rule."""
    return await alarm_rules.get(principal, rule_id)


@post("/", guards=[EDITORS], example=RULE)
async def create_alarm_rule(
    principal: Requester, alarm_rules: Rules, data: JSONBody[PutRule]
) -> RuleRef:
    """Create a rule of a device or a product, at most `deviceRules` or `productRules` of each."""
    rule_id = await alarm_rules.create(principal, data)
    return RuleRef(str(rule_id))


@put("/{rule_id:str}", guards=[EDITORS], example=RULE)
async def replace_alarm_rule(
    principal: Requester, alarm_rules: Rules, rule_id: PathId, data: JSONBody[PutRule]
) -> None:
    """Set a rule; when it decides otherwise now, the alarms that it has raised are over."""
    await alarm_rules.replace(principal, rule_id, data)


@delete("/{rule_id:str}", guards=[EDITORS])
async def delete_alarm_rule(principal: Requester, alarm_rules: Rules, rule_id: PathId) -> None:
    """Delete a rule; the alarms that it has raised are over, and stay to be looked up."""
    await alarm_rules.delete(principal, rule_id)


ROUTERS = [
    Router(
        "/alarms",
        route_handlers=[search_alarms, count_alarms, claim_alarms, clear_alarms, export_alarms],
        tags=["Alarms"],
    ),
    Router(
        "/alarm-rules",
        route_handlers=[
            search_alarm_rules,
            get_alarm_rule,
            create_alarm_rule,
            replace_alarm_rule,
            delete_alarm_rule,
        ],
        tags=["Alarms"],
    ),
]
