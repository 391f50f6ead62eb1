"""Who calls generated requests, and where: the gateway, or a service's own port."""

import json
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import uuid4

import httpx
import schemathesis
from schemathesis.auths import AuthContext, apply_basic_auth
from schemathesis.checks import not_a_server_error
from schemathesis.engine import from_schema
from schemathesis.engine.core import EventStream
from schemathesis.engine.events import FatalError, NonFatalError, ScenarioFinished
from schemathesis.hooks import HookContext
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from deploy.platform.bootstrap import DEFAULT_TENANT
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner, Principal, PrincipalKind
from libs.common.things import DIRECT_INTEGRATION
from services.device.commands.polling import MAX_POLL_SECONDS
from services.gateway.routes import RouteTable
from tests.contract.client import Api, new_sn
from tests.contract.console import Console, new_email
from tests.contract.hall import add_custom
from tests.e2e.platform import Platform

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
GATEWAY = "gateway"
VALUE_TYPES = ("LONG", "DOUBLE", "STRING", "BOOLEAN", "BINARY")
JOURNEYS = 50
LINKS = (
    ("addDevice", "/data/deviceId", "/devices/{device_id}"),
    ("addDevice", "/data/deviceId", "/devices/remove/{device_id}"),
    ("searchDevices", "/data/content/0/deviceId", "/devices/{device_id}"),
    ("searchDevices", "/data/content/0/sn", "/ingest/v1/{sn}"),
    ("createTasks", "/data/deviceTaskRelations/0/taskId", "/tasks/{task_id}"),
    ("listProducts", "/data/content/0/model", "/products/{model}"),
    ("createDeviceGroup", "/data/id", "/device-group/{group_id}"),
    ("createAlarmRule", "/data/id", "/alarm-rules/{rule_id}"),
    ("createEntityTag", "/data/id", "/entity/tags/{tag_id}"),
    ("findDevices", "/data/content/0/id", "/device/{device_id}"),
    ("createEntity", "/data/id", "/entity/{entity_id}"),
    ("createRole", "/data/role_id", "/user/roles/{role_id}"),
    ("createMenu", "/data/menu_id", "/user/menus/{menu_id}"),
    ("createApplication", "/data/application_id", "/application/{application_id}"),
    ("createDashboard", "/data/dashboard_id", "/dashboard/{dashboard_id}"),
    ("saveDesign", "/data/flow_id", "/workflow/flows/{flow_id}"),
)
"""Operations, where in their answers an id is, and which paths it leads to."""
LONG_POLLS = range(1, MAX_POLL_SECONDS + 1)
"""Values of `wait` that are right, and that nobody has the time to try."""


@dataclass
class Person:
    """A super-admin with a tenant of their own."""

    token: str
    tenant: str
    id: str
    owned: dict[str, str]
    """Ids of what there is in the tenant, by the names that paths have for them."""
    keys: list[str]
    """Keys of custom entities, one of each value type."""


def link(document: dict[str, Any]) -> None:
    """Write `LINKS` into a document, as OpenAPI's link objects."""
    operations = {
        operation["operationId"]: (path, operation)
        for path, item in document["paths"].items()
        for operation in item.values()
    }
    for source, pointer, start in LINKS:
        links = operations[source][1]["responses"]["200"].setdefault("links", {})
        parameters = {start.partition("{")[2].rstrip("}"): f"$response.body#{pointer}"}
        for name in (name for name, (path, _) in operations.items() if start in path):
            links[f"{name}{pointer}"] = {"operationId": name, "parameters": parameters}


def map_query(_: HookContext, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Ask for no long poll."""
    if query and query.get("wait") in LONG_POLLS:
        query["wait"] = 0
    return query


def _is_id(value: Any) -> bool:
    return (isinstance(value, str) and value.isdecimal()) or type(value) is int


def _some(values: dict[str, Any]) -> Any:
    return next(iter(values.values()))


@dataclass
class Target:
    """An application, a device and a super-admin whose data may be ruined."""

    token: str
    application_id: str
    device_id: int
    sn: str
    key: str
    user: Person

    def aim(self, case: schemathesis.Case) -> None:
        """Point a request at what exists, where the document allows anything."""
        given = case.path_parameters
        if case.method != "DELETE" and "/remove/" not in case.path:
            there: dict[str, int | str] = {**self.user.owned}
            if not case.path.startswith("/device/{"):  # a console's
                there["device_id"] = self.device_id
            given.update({name: there[name] for name in given.keys() & there})
        if case.path.startswith("/ingest/"):
            given["sn"] = self.sn
        if case.query.get("wait") in LONG_POLLS:
            case.query["wait"] = 0
        if isinstance(case.body, dict):
            self._aim_body(case.body)

    def _aim_body(self, body: dict[str, Any]) -> None:
        """Let generated values meet entities and parameters that exist."""
        if _is_id(body.get("entity_id")):
            body["entity_id"] = self.user.owned["entity_id"]
        if isinstance(exchange := body.get("exchange"), dict) and exchange:
            exchange[self.user.keys[len(exchange) % len(self.user.keys)]] = _some(exchange)
        if isinstance(params := body.get("param_entities"), dict) and params:
            body["integration"] = DIRECT_INTEGRATION
            params[f"{DIRECT_INTEGRATION}.integration.add_device.sn"] = _some(params)

    def credentials(self, kind: PrincipalKind) -> dict[str, Any]:
        """What the gateway wants to see."""
        if kind is PrincipalKind.DEVICE:
            return {"auth": (self.sn, self.key)}
        token = self.user.token if kind is PrincipalKind.USER else self.token
        return {"headers": {"Authorization": f"Bearer {token}"}}

    def principal(self, kind: PrincipalKind) -> Principal:
        """Whom the gateway would have found to call."""
        match kind:
            case PrincipalKind.APPLICATION:
                return Principal(kind, DEFAULT_TENANT, self.application_id)
            case PrincipalKind.DEVICE:
                return Principal(kind, DEFAULT_TENANT, self.sn)
            case PrincipalKind.USER:
                return Principal(kind, self.user.tenant, self.user.id, super_admin=True, access=1)


@dataclass
class Door:
    """The gateway, or a service's own port with the gateway's signature."""

    name: str
    platform: Platform
    target: Target

    def __post_init__(self) -> None:
        self._signer = HeaderSigner(self.platform.state.secrets["internal_private_key"])
        self._routes = RouteTable()

    @property
    def schema(self) -> schemathesis.BaseSchema:
        """What it says of itself."""
        address, path = self.platform.base_url, "/openapi.json"
        if self.name != GATEWAY:
            address = f"http://127.0.0.1:{self.platform.state.ports[self.name]}"
            path = "/schema/openapi.json"
        schema = schemathesis.openapi.from_dict(httpx.get(address + path).raise_for_status().json())
        schema.config.update(base_url=address)
        return schema

    def travel(self, rounds: int) -> tuple[list[Any], set[str]]:
        """Let Schemathesis go along `LINKS`; return the faults, and the links it followed.

        It ends a round early when a repeated call answers differently, as what is kept makes it.
        """
        schema = self.schema
        link(schema.raw_schema)
        schema.auth(refresh_interval=None)(self._authentication())
        schema.hook(map_query)
        schema.config.phases.update(phases=["stateful"])
        schema.config.checks.update(included_check_names=[check.__name__ for check in CHECKS])
        schema.config.generation.update(modes=["positive"], max_examples=JOURNEYS, no_shrink=True)
        faults, followed = [], set()
        for event in chain.from_iterable(self._round(schema, seed) for seed in range(rounds)):
            if isinstance(event, NonFatalError | FatalError):
                faults.append(event.info.full_message)
            elif isinstance(event, ScenarioFinished):
                checks = [check for made in event.recorder.checks.values() for check in made]
                faults += [check.failure_info.failure for check in checks if check.failure_info]
                steps = event.recorder.cases.values()
                followed |= {step.transition.id for step in steps if step.transition}
        return faults, followed

    def _round(self, schema: schemathesis.BaseSchema, seed: int) -> EventStream:
        schema.config.seed = seed
        return from_schema(schema).execute()

    def _authentication(self) -> type:
        door = self

        class Authentication:
            def get(self, case: schemathesis.Case, _: AuthContext) -> dict[str, Any]:
                return door._credentials(case)

            def set(self, case: schemathesis.Case, found: dict[str, Any], _: AuthContext) -> None:
                if "auth" in found:
                    apply_basic_auth(case, *found["auth"])
                case.headers.update(found.get("headers", {}))

        return Authentication

    def call(self, case: schemathesis.Case) -> None:
        """Call as one who may; raise where the answer is not as documented."""
        self.target.aim(case)
        case.call_and_validate(checks=CHECKS, **self._credentials(case))

    def call_as_stranger(self, case: schemathesis.Case) -> None:
        """Call a service without a principal, and as those whom the gateway would refuse."""
        self.target.aim(case)
        allowed = self._kinds(case)
        strangers = [self._header(kind) for kind in set(PrincipalKind) - allowed]
        for headers in [{}, *strangers] if allowed else []:
            answer = case.call_and_validate(checks=CHECKS, headers=headers)
            assert answer.status_code == (403 if headers else 401), answer.text

    def _credentials(self, case: schemathesis.Case) -> dict[str, Any]:
        kind = next(iter(self._kinds(case)), None)
        if kind is None:
            return {}
        if self.name == GATEWAY:
            return self.target.credentials(kind)
        return {"headers": self._header(kind)}

    def _kinds(self, case: schemathesis.Case) -> frozenset[PrincipalKind]:
        route = self._routes.find(case.path.encode())
        assert route is not None, f"the gateway does not lead to {case.path}"
        return route.kinds

    def _header(self, kind: PrincipalKind) -> dict[str, str]:
        return {PRINCIPAL_HEADER: self._signer.sign(self.target.principal(kind))}


async def make_target(platform: Platform) -> Target:
    """An application of the fuzzer's own with one device, and a tenant of its own."""
    made = await platform.make_application("fuzzer")
    client = await Api(platform.base_url, made["clientId"], made["clientSecret"], 0).log_in()
    sn = new_sn()
    identity = await client.add(sn)
    key = (await client.done("POST", f"/devices/{identity}/credentials"))["key"]
    await client.close()
    user = await _super_admin(platform)
    return Target(client.token, str(made["applicationId"]), identity, sn, key, user)


async def _super_admin(platform: Platform) -> Person:
    """The first user of a tenant that was made for them, with one thing of each kind."""
    tenant, email = f"fuzzer-{uuid4().hex[:8]}", new_email()
    async with platform.admin() as operator:
        wanted = json.dumps({"name": tenant}).encode()
        made = json.loads((await operator.request("rpc.auth.create_tenant", wanted)).data)
    console = Console(platform.base_url, (made["clientId"], made["clientSecret"]), email)
    body = {"email": email, "nickname": "Fuzzer", "password": console.password}
    registered = await console.http.post("/user/register", json=body, headers={"TENANT_ID": tenant})
    assert registered.status_code == 200, registered.text
    await console.log_in()
    menu = {"code": "fuzzed", "name": "fuzzed", "type": "MENU"}
    owned = {
        "user_id": await console.add_user(),
        "role_id": await console.add_role(),
        "menu_id": (await console.done("POST", "/user/menus", menu))["menu_id"],
    }
    for what in ("application", "dashboard"):
        made = await console.done("POST", f"/{what}", {"name": "fuzzed"})
        owned[f"{what}_id"] = made[f"{what}_id"]
    device, sn = {"name": "fuzzed", "integration": DIRECT_INTEGRATION}, new_sn("FZ")
    params = {f"{DIRECT_INTEGRATION}.integration.add_device.sn": sn}
    assert (await console.ask("POST", "/device", device | {"param_entities": params})).is_success
    found = await console.done("POST", "/device/search", {})
    owned |= {"device_id": found["content"][0]["id"], "integration_id": DIRECT_INTEGRATION}
    group, tag = {"name": "fuzzed"}, {"name": "fuzzed", "color": "#ffffff"}
    silent = {"type": "SILENCE", "seconds": 3600}
    rule = {"name": "fuzzed", "severity": "INFO", "condition": silent}
    rule |= {"device_id": owned["device_id"]}
    owned["rule_id"] = (await console.done("POST", "/alarm-rules", rule))["id"]
    owned["group_id"] = (await console.done("POST", "/device-group", group))["id"]
    owned["tag_id"] = (await console.done("POST", "/entity/tags", tag))["id"]
    customs = [await add_custom(console, value_type=kind) for kind in VALUE_TYPES]
    owned["entity_id"] = customs[0]["id"]
    await console.close()
    return Person(console.token, tenant, console.id, owned, [custom["key"] for custom in customs])
