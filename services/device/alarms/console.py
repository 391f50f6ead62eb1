"""Console operations on alarms and alarm rules."""

from typing import Annotated

from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream

from libs.common.contracts.flows import Severity
from libs.common.http import HttpRequest, RequestPrincipal, get_principal
from libs.common.http.console import Page, delete, get, post, put
from libs.common.http.guards import allow_holders
from libs.common.http.ids import Id, PathId
from libs.common.http.operations import route_operations
from libs.common.http.streaming import StreamedAnswer
from libs.common.identity.functions import Function
from libs.common.tsl.limits import MAX_TIME_MS
from services.device.alarms.rules import AlarmRuleService
from services.device.alarms.schemas import (
    AlarmCounts,
    AlarmResponse,
    AlarmRuleResponse,
    ClaimAlarms,
    ClearAlarms,
    PutRule,
    RuleRef,
    SearchAlarms,
    SearchRules,
)
from services.device.alarms.service import AlarmService

AlarmRuleServiceDependency = NamedDependency[AlarmRuleService]

READERS = allow_holders(Function.DASHBOARD_EDIT, Function.DASHBOARD_VIEW, Function.DEVICE_VIEW)
EDITORS = allow_holders(Function.DEVICE_EDIT)
RULE_EXAMPLE = {
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
QueryTime = Annotated[int | None, QueryParameter(ge=0, le=MAX_TIME_MS)]
MAX_QUERY_DEVICES = 1000
"""Maximum devices in a query string."""


@post(
    "/search",
    guards=[READERS],
    example={"keyword": "", "open": True, "page_size": 10, "page_number": 1},
)
async def search_alarms(
    principal: RequestPrincipal,
    alarms: NamedDependency[AlarmService],
    data: JSONBody[SearchAlarms | None] = None,
) -> StreamedAnswer[Page[AlarmResponse]]:
    """Search alarms of the devices that the caller may see, by default newest first.

    The response is a page even if the request has no page size.
    """
    return await alarms.search(principal, data or SearchAlarms())


@post("/count", guards=[READERS], example={"open": True})
async def count_alarms(
    principal: RequestPrincipal,
    alarms: NamedDependency[AlarmService],
    data: JSONBody[SearchAlarms | None] = None,
) -> AlarmCounts:
    """Count the alarms of a search: all, open, and unclaimed ones."""
    return await alarms.count(principal, data or SearchAlarms())


@post("/claim", guards=[EDITORS], example={"alarm_ids": []})
async def claim_alarms(
    principal: RequestPrincipal, alarms: NamedDependency[AlarmService], data: JSONBody[ClaimAlarms]
) -> None:
    """Claim alarms: all unclaimed ones of a device, or selected ones."""
    await alarms.claim(principal, data)


@post("/clear", guards=[EDITORS], example={"alarm_ids": []})
async def clear_alarms(
    principal: RequestPrincipal, alarms: NamedDependency[AlarmService], data: JSONBody[ClearAlarms]
) -> None:
    """Clear alarms; a rule raises a new alarm only after a return to normal or at a new event."""
    await alarms.clear(principal, data)


@get("/export", guards=[READERS], media_type="text/csv")
async def export_alarms(
    request: HttpRequest,
    alarms: NamedDependency[AlarmService],
    keyword: Annotated[
        str | None,
        QueryParameter(
            max_length=512,
            description="Part of the content or of the device's name, ignoring case.",
        ),
    ] = None,
    device_ids: Annotated[
        list[Id] | None,
        QueryParameter(
            max_items=MAX_QUERY_DEVICES,
            description="Ids of devices. Repeat the parameter for each device.",
        ),
    ] = None,
    start_timestamp: QueryTime = None,
    end_timestamp: QueryTime = None,
    alarm_status: Annotated[
        list[bool] | None,
        QueryParameter(max_items=2, description="True for unclaimed, false for claimed alarms."),
    ] = None,
    is_open: Annotated[
        bool | None,
        QueryParameter(name="open", description="True for alarms that are not cleared."),
    ] = None,
    severity: Annotated[list[Severity] | None, QueryParameter(max_items=5)] = None,
    rule_id: Annotated[
        Id | None, QueryParameter(description="Id of the rule that raised the alarm.")
    ] = None,
    timezone: Annotated[
        str,
        QueryParameter(max_length=64, description="IANA name of the time zone of exported times."),
    ] = "UTC",
) -> Stream:
    """Export the alarms of a search as CSV, newest first; at most 100,000."""
    body = SearchAlarms(
        keyword=keyword,
        device_ids=list(device_ids or []),
        start_timestamp=start_timestamp,
        end_timestamp=end_timestamp,
        alarm_status=alarm_status,
        open=is_open,
        severity=severity,
        rule_id=rule_id,
    )
    lines = await alarms.export(get_principal(request), body, timezone)
    headers = {"Content-Disposition": "attachment; filename=Alarms.csv"}
    return Stream(lines, media_type="text/csv", headers=headers)


ALARM_ROUTER = route_operations(globals(), "/alarms", tags=["Alarms"])


@post("/search", guards=[READERS], example={"keyword": "hot", "page_size": 10, "page_number": 1})
async def search_alarm_rules(
    principal: RequestPrincipal,
    alarm_rules: AlarmRuleServiceDependency,
    data: JSONBody[SearchRules | None] = None,
) -> Page[AlarmRuleResponse]:
    """Search alarm rules; rules of products require access to all devices."""
    return await alarm_rules.search(principal, data or SearchRules())


@get("/{rule_id:str}", guards=[READERS])
async def get_alarm_rule(
    principal: RequestPrincipal, alarm_rules: AlarmRuleServiceDependency, rule_id: PathId
) -> AlarmRuleResponse:
    """Return an alarm rule."""
    return await alarm_rules.get(principal, rule_id)


@post("/", guards=[EDITORS], example=RULE_EXAMPLE)
async def create_alarm_rule(
    principal: RequestPrincipal, alarm_rules: AlarmRuleServiceDependency, data: JSONBody[PutRule]
) -> RuleRef:
    """Create an alarm rule of a device or a product.

    The tenant's limits `deviceRules` and `productRules` apply to each device and each product.
    """
    rule_id = await alarm_rules.create(principal, data)
    return RuleRef(str(rule_id))


@put("/{rule_id:str}", guards=[EDITORS], example=RULE_EXAMPLE)
async def replace_alarm_rule(
    principal: RequestPrincipal,
    alarm_rules: AlarmRuleServiceDependency,
    rule_id: PathId,
    data: JSONBody[PutRule],
) -> None:
    """Replace an alarm rule; end its alarms if condition, target or `enabled` changes."""
    await alarm_rules.replace(principal, rule_id, data)


@delete("/{rule_id:str}", guards=[EDITORS])
async def delete_alarm_rule(
    principal: RequestPrincipal, alarm_rules: AlarmRuleServiceDependency, rule_id: PathId
) -> None:
    """Delete an alarm rule and end its alarms, which remain in the list."""
    await alarm_rules.delete(principal, rule_id)


RULE_ROUTER = route_operations(globals(), "/alarm-rules", tags=["Alarms"])
