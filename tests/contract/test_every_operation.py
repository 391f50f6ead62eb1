"""What holds for every operation of both APIs, whoever calls it with whatever.

To assert something of every answer, add a function to `CHECKS`: `Sweep.see` calls each with every
answer of `test_every_answer_is_sound`, successes and failures, of callers of each sort.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from libs.common.http.guards import GuardedOperation
from libs.common.http.request import MAX_LOG_LINES_PER_SECOND
from libs.common.identity import PrincipalKind
from libs.common.things import DIRECT_INTEGRATION
from tests.contract.cast import BODIES, UNKNOWN, Cast, list_requests, name_of, one_request_id
from tests.contract.client import Api, new_sn
from tests.contract.console import new_admin, new_name
from tests.contract.places import Place, Schema, is_id, is_text, places
from tests.contract.victim import ECHO, Victim, make_victim
from tests.e2e.platform import Platform
from tests.e2e.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("contract")

LEAST = 230
"""Operations of both APIs, at the least."""
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")
LONG = "x" * 33_000
"""Longer than any text, and than any pattern that MongoDB takes."""


def no_server_error(answer: httpx.Response) -> None:
    """No request is answered with a 5xx."""
    assert answer.status_code < 500, answer.text


CHECKS: tuple[Callable[[httpx.Response], None], ...] = (no_server_error, one_request_id)
"""What must hold for each answer."""


@dataclass
class Sweep:
    """Calls operations, checks what they answer, and finds the failures in the log."""

    platform: Platform
    cast: Cast
    document: Schema
    failed: set[str] = field(default_factory=set)
    """Request ids of failures that the log must have."""

    def credentials(self, operation: GuardedOperation) -> dict[str, Any]:
        """What lets the most powerful caller in."""
        kind = operation.guard.kind if operation.guard else None
        if kind is PrincipalKind.DEVICE:
            return {"auth": self.cast.device}
        if kind is None:
            return {}
        token = self.cast.admin.token if kind is PrincipalKind.USER else self.cast.api.token
        return {"token": token}

    async def see(self, answer: httpx.Response) -> None:
        """Check an answer."""
        for check in CHECKS:
            check(answer)
        if answer.status_code >= 400:
            self.failed.add(answer.headers["x-request-id"])
            if len(self.failed) % (MAX_LOG_LINES_PER_SECOND // 2) == 0:
                await asyncio.sleep(1)  # a process logs so many lines in a second

    async def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request; `token` is that of a caller."""
        if token := more.pop("token", ""):
            more["headers"] = {"Authorization": f"Bearer {token}"} | more.get("headers", {})
        return await self.cast.api.http.request(method, path, **more)

    def path(self, template: str, **given: str) -> str:
        """A path of what there is, but for what is `given`."""
        targets = self.cast.targets | {"sn": self.cast.device[0]}
        return template.format_map(targets | given)

    async def find_failures(self) -> None:
        """Assert that the logs of the processes have the request id of each failure."""
        assert self.failed
        missing = self.failed
        async with asyncio.timeout(PATIENCE):
            while missing := missing - self._logged():
                await asyncio.sleep(0.2)
        self.failed = set()

    def _logged(self) -> set[str]:
        logs = (self.platform.directory / "logs").glob("*.log")
        return {one for log in logs for one in re.findall(r"requestId=(\w+)", log.read_text())}


@pytest.fixture(scope="module")
async def sweep(platform: Platform, cast: Cast) -> Sweep:
    """One for all tests here."""
    document = (await cast.api.http.get("/openapi.json")).raise_for_status().json()
    return Sweep(platform, cast, document)


async def test_every_answer_is_sound(sweep: Sweep, subtests: pytest.Subtests) -> None:
    """For callers of what there is and is not, and bodies that cannot be read.

    Each failure is in the log by its request id. Strangers, and bodies that can be read, are asked
    in `test_matrix`.
    """
    assert len({name_of(one) for one in list_requests()}) >= LEAST
    kinds = {one.guard.kind: one for one in list_requests() if one.guard is not None}
    for operation in kinds.values():
        await sweep.see(await sweep.send(operation.method, sweep.path(operation.path)))
    for operation in list_requests():
        with subtests.test(name_of(operation)):
            method, login = operation.method, sweep.credentials(operation)
            known, unknown = sweep.path(operation.path), operation.path
            for name in sweep.cast.targets:
                unknown = unknown.replace(f"{{{name}}}", UNKNOWN)
            if method == "GET":
                await sweep.see(await sweep.send(method, known, **login))
                await sweep.see(await sweep.send(method, unknown, **login))
            else:
                broken = {"content": b"[" * 5000, "headers": {"Content-Type": "application/json"}}
                await sweep.see(await sweep.send(method, unknown, **broken, **login))
    await sweep.find_failures()


async def test_answers_of_no_operation_are_sound(sweep: Sweep, subtests: pytest.Subtests) -> None:
    """A method that a path does not have, and a path that is none, have a request id too."""
    methods: dict[str, set[str]] = {}
    for operation in list_requests():
        methods.setdefault(operation.path, set()).add(operation.method)
    logins = {one.path: sweep.credentials(one) for one in list_requests()}
    for template, known in methods.items():
        with subtests.test(template):
            for method in [one for one in METHODS if one not in known][:1]:
                answer = await sweep.send(method, sweep.path(template), **logins[template])
                await sweep.see(answer)
                assert answer.status_code >= 400
            path = f"{sweep.path(template)}/no/such/path"
            await sweep.see(await sweep.send("PATCH", path, **logins[template]))
    await sweep.find_failures()


def _operation(place: Place) -> GuardedOperation:
    return next(
        one for one in list_requests() if (one.method, one.path) == (place.method, place.path)
    )


BESIDE: dict[str, dict[str, Any]] = {
    "resource_id": {"resource_type": "DEVICE"},
    "resources[0].id": {"type": "DEVICE"},
    "deviceIds[0]": {"type": "TSL", "config": {"properties": {}}},
    "commandId": {"status": "SUCCESS"},
    "[0].commandId": {"status": "SUCCESS"},
}
"""What has to stand beside an id, so that it is read as a number."""
NAMES = {"object_id", "actor_id"}
"""Ids that may be any text."""


def _spellings(known: int) -> list[str]:
    """Texts that are no ids, some of which are numbers of a resource that exists."""
    wide = "".join(chr(ord("\uff10") + int(digit)) for digit in str(known))
    return [f"{known}.0", f"{known}e0", f"+{known}", f" {known}", wide, f"{known:017d}"]


async def _states(sweep: Sweep) -> dict[str, int]:
    """Which resources there are: the status of each GET of one."""
    return {
        one.path: (
            await sweep.send("GET", sweep.path(one.path), **sweep.credentials(one))
        ).status_code
        for one in list_requests()
        if one.method == "GET" and "_id}" in one.path and not one.path.endswith("able")
    }


def _check_refusal(answer: httpx.Response, place: Place, value: Any) -> None:
    """A 400 that names the place, as the API at fault spells it."""
    body = answer.json()
    if place.steps[0] == 0:  # several messages of a device: each refused one is named
        found = body["data"]
        assert (found["accepted"], found["refused"][0]["field"]) == (0, place.steps[-1]), value
        return
    assert answer.status_code == 400, (value, answer.text)
    first, *rest = place.name.split("_")
    camel = first + "".join(map(str.capitalize, rest))
    named = body.get("detail_message") or body.get("errMsg")
    expected = place.name.partition("[")[0]
    assert named.startswith((expected, camel.partition("[")[0])), (value, answer.text)


async def test_ids_have_one_grammar(sweep: Sweep, subtests: pytest.Subtests) -> None:
    """1 to 16 ASCII digits or a JSON integer; anything else is refused, and nothing is deleted."""
    before = await _states(sweep)
    found = places(sweep.document, is_id)
    assert len(found) > 150
    for number, place in enumerate(found):
        operation = _operation(place)
        login = sweep.credentials(operation)
        with subtests.test(str(place)):
            if place.source == "body":
                values: list[Any] = [1.0, -1 if place.name in NAMES else _spellings(1)[1]]
                for value in values:
                    body = place.body(value, BESIDE.get(place.name, {}))
                    answer = await sweep.send(
                        place.method, sweep.path(place.path), json=body, **login
                    )
                    _check_refusal(answer, place, value)
                continue
            name = str(place.steps[0])
            spellings = _spellings(int(sweep.cast.targets.get(name, 1)))
            text = spellings[number % len(spellings)]
            given = {name: quote(text)} if place.source == "path" else {}
            params = [(name, text)] if place.source == "query" else None
            answer = await sweep.send(
                place.method, sweep.path(place.path, **given), params=params, **login
            )
            _check_refusal(answer, place, text)
    assert await _states(sweep) == before


async def test_every_numeric_id_is_documented_as_one(sweep: Sweep) -> None:
    """A name that ends as those of ids do has the grammar of ids, unless it is known as a text."""
    ids = {str(place) for place in places(sweep.document, is_id)}
    texts = {
        str(place)
        for place in places(sweep.document, is_text)
        if re.search("(?i)(_id|Id|_ids|Ids)$", str(place.steps[-1])) and str(place) not in ids
    }
    names = {text.rpartition(" ")[2].rpartition(".")[2] for text in texts}
    assert names <= {
        *("integration_id", "session_id", "request_id"),
        *("service_id", "serviceId", "event_id", "eventId"),
        *("deviceIds", "id"),  # one text for several, and names of codecs' arguments
    }


async def test_no_text_is_too_long_for_an_operation(
    sweep: Sweep, subtests: pytest.Subtests
) -> None:
    """Whatever is done with it: searched for, stored, compiled."""
    for place in places(sweep.document, is_text):
        if place.source == "path":
            continue  # the gateway bounds the head of a request
        operation = _operation(place)
        login = sweep.credentials(operation)
        with subtests.test(str(place)):
            if place.source == "query":
                sent = {"params": {str(place.steps[0]): LONG[:20_000]}}
            else:
                sent = {"json": place.body(LONG)}
            no_server_error(await sweep.send(place.method, sweep.path(place.path), **sent, **login))


OF_NAMES = {
    **dict.fromkeys(("device", "devices", "resource", "object", "resources[0].id"), "device_id"),
    **dict.fromkeys(("actor", "user"), "user_id"),
    **dict.fromkeys(("menu", "parent"), "menu_id"),
    **dict.fromkeys(("added_tag", "removed_tag"), "tag_id"),
    **dict.fromkeys(("workflow", "flow"), "flow_id"),
    **dict.fromkeys(("sn", "snDevEUI", "identifier"), "sn"),
    "command": "task_id",
    "model": "model",
}
"""What the names of inputs are about, where that is not the name of a parameter of paths."""
OF_PATHS = {
    "/device/search": "device_id",
    "/device-batch/export": "device_id",
    "/entity/export": "entity_id",
    "/entity/tags/delete": "tag_id",
    "/credentials/delete": "credential_id",
    "/workflow/flows/design": "flow_id",
}
"""What `id`, `ids` and `id_list` are about."""
POWERLESS = "user without functions"
SKIPPED = {"POST /alarms/claim body device_id"}
"""Places that exclude another one of the same body."""


def _bases(victim: Victim) -> dict[str, dict[str, Any]]:
    """Bodies of operations for which neither the document nor `BODIES` has one that fits."""
    key, flow = (
        f"{DIRECT_INTEGRATION}.device.{victim.ids('sn')}",
        f"system.integration.{victim.ids('flow_id')}",
    )
    return {
        "POST /alarm-rules": BODIES["PUT /alarm-rules/{rule_id}"],
        "POST /device-batch/configure": {"properties": {"led": False}},
        "POST /device/openapi/v1/tasks": {"type": "TSL", "config": {"properties": {"led": False}}},
        "POST /entity/history/search": {"start_timestamp": 0, "end_timestamp": 2**42},
        "POST /entity/property/update": {"exchange": {f"{key}.led": False}},
        "POST /entity/service/call": {"exchange": {f"{flow}.x": 4}},
        "POST /entity/tags/mapping": {"operation": "OVERWRITE"},
        "POST /user/menus": {"code": "stranger", "name": "stranger", "type": "MENU"},
        "POST /workflow/flows/design": {"name": new_name(), "design_data": ECHO, "enabled": True},
    }


def _id_of_victim(place: Place, victim: Victim) -> Any:
    """The victim's id that belongs at a place, None where no id belongs."""
    last = next((step for step in reversed(place.steps) if isinstance(step, str)), "")
    name = re.sub("(_id_list|_ids|_id|Ids|Id)$", "", last)
    found = OF_NAMES.get(place.name) or OF_NAMES.get(name)
    if name in {"id", "ids", "id_list"}:
        found = found or OF_PATHS.get(place.path)
    if found is None and f"{name}_id" in victim.cast.targets:
        found = f"{name}_id"
    return victim.ids(found) if found else None


def _put(body: Any, steps: tuple[str | int, ...], value: Any) -> Any:
    """A body with a value at a place; where its form differs, the body as it is."""
    if not steps:
        return value
    first, *rest = steps
    if isinstance(first, int):
        inner = body[0] if isinstance(body, list) and body else None
        return [_put(inner, tuple(rest), value)] if isinstance(body, list | None) else body
    if not isinstance(body, dict | None):
        return body
    body = body or {}
    return {**body, first: _put(body.get(first), tuple(rest), value)}


@dataclass
class Request:
    """A request that names what the victim has wherever the operation takes an id."""

    operation: GuardedOperation
    path: str
    params: dict[str, str]
    body: Any


def _requests(sweep: Sweep, victim: Victim) -> list[Request]:
    inputs: dict[str, list[Place]] = defaultdict(list)
    for place in (*places(sweep.document, is_id), *places(sweep.document, is_text)):
        inputs[f"{place.method} {place.path}"].append(place)
    found, bases = [], _bases(victim)
    for operation in list_requests():
        name = name_of(operation)
        documented = sweep.document["paths"].get(operation.path, {})
        content = documented.get(operation.method.lower(), {}).get("requestBody", {})
        example = content.get("content", {}).get("application/json", {}).get("example")
        body = bases.get(name) or BODIES.get(name) or example or {}
        params = {}
        for place in inputs[name]:
            value = _id_of_victim(place, victim)
            if value is not None and place.source == "query":
                params[str(place.steps[0])] = value
            elif value is not None and place.source == "body" and str(place) not in SKIPPED:
                body = _put(body, place.steps, value)
        path = operation.path.format_map(victim.cast.targets)
        found.append(Request(operation, path, params, body))
    return found


@dataclass
class Owner:
    """An application, and the SN and key of a device of it."""

    api: Api
    device: tuple[str, str]


@pytest.fixture(scope="module")
async def victim(platform: Platform) -> AsyncIterator[tuple[Victim, dict[str, Any]]]:
    """A tenant with one of everything, and strangers; the application's device speaks for it."""
    tenant, console = await new_admin(platform)
    made = await platform.make_application(new_name(), tenant)
    secret, identity = made["clientSecret"], int(made["applicationId"])
    application = Api(platform.base_url, made["clientId"], secret, identity)
    await application.log_in()
    sn = new_sn("ST")
    device = await application.add(sn)
    key = (await application.done("POST", f"/devices/{device}/credentials"))["key"]
    found = await make_victim(platform, (tenant, console))
    strangers = {
        "super-admin of another tenant": console,
        "application of another tenant": Owner(application, (sn, key)),
        POWERLESS: found.cast.powerless,
        "nobody": None,
    }
    yield found, strangers
    await asyncio.gather(console.close(), application.close(), found.cast.powerless.close())
    await asyncio.gather(found.cast.holder.close(), found.cast.api.close())
    await found.cast.admin.close()


async def _ask_as(stranger: Any, request: Request, sweep: Sweep) -> httpx.Response:
    more: dict[str, Any] = {"params": request.params}
    operation = request.operation
    if operation.method != "GET":
        more["json"] = request.body
    if isinstance(stranger, Owner):
        if operation.guard is not None and operation.guard.kind is PrincipalKind.DEVICE:
            return await sweep.send(operation.method, request.path, auth=stranger.device, **more)
        stranger = stranger.api
    for _ in range(2):
        token = "" if stranger is None else stranger.token
        answer = await sweep.send(operation.method, request.path, token=token, **more)
        if answer.status_code != 401 or stranger is None:
            break
        await stranger.log_in()  # it may have ended its own session
    return answer


def _is_answered(operation: GuardedOperation, name: str, stranger: Any) -> bool:
    """Whether an operation is for that kind of caller; `test_matrix` refuses it to others."""
    guard = operation.guard
    if guard is None or stranger is None:
        return guard is None
    if name == POWERLESS and (guard.super_admin or guard.functions):
        return False
    return (guard.kind is PrincipalKind.USER) is not isinstance(stranger, Owner)


async def test_strangers_change_nothing_of_a_tenant(
    sweep: Sweep, victim: tuple[Victim, dict[str, Any]], subtests: pytest.Subtests
) -> None:
    """Every operation, by every sort of stranger, with the ids of a victim wherever it takes one.

    All documents of the victim are the same bytes before and after, and none is new.
    """
    tenant, strangers = victim
    requests = _requests(sweep, tenant)
    assert len(requests) >= LEAST
    for name, stranger in strangers.items():
        with subtests.test(name):
            for request in requests:
                if _is_answered(request.operation, name, stranger):
                    no_server_error(await _ask_as(stranger, request, sweep))
            assert tenant.changes() == [], name
    await tenant.cast.admin.ask("PUT", f"/device/{tenant.ids('device_id')}", {"name": "changed"})
    assert any("device.devices" in one for one in tenant.changes())
