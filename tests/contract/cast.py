"""Callers of every sort, and what they name in the paths of operations."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from libs.common.http.guards import WEBSOCKET, GuardedOperation
from libs.common.identity.functions import Function
from libs.common.things import DIRECT_INTEGRATION
from tests import apps
from tests.contract.client import MODEL, Api, new_sn
from tests.contract.console import PASSWORD, Console, new_email, new_name
from tests.contract.hall import add_dashboard

PRIVATE = {"/healthz", "/readyz", "/metrics", "/schema", "/schema/openapi.json", "/schema/{path}"}
"""Pages of a service for its neighbours; the gateway leads nobody there."""
UNKNOWN = "9007199254740990"
"""An id of nothing, whatever is asked for."""
BODIES: dict[str, Any] = {
    "PUT /user/members/{user_id}": {"email": new_email(), "nickname": "Taken over"},
    "PUT /user/members/{user_id}/change-password": {"password": PASSWORD},
    "PUT /user/members/{user_id}/status": {"enabled": False},
    "POST /user/members/{user_id}/permission": {"resource_type": "DEVICE", "resource_id": "1"},
    "PUT /user/roles/{role_id}": {"name": new_name()},
    "POST /user/roles/{role_id}/associate-user": {"user_ids": [UNKNOWN]},
    "POST /user/roles/{role_id}/disassociate-user": {"user_ids": [UNKNOWN]},
    "POST /user/roles/{role_id}/associate-menu": {"menu_ids": []},
    **{
        f"POST /user/roles/{{role_id}}/{verb}-resource": {
            "resources": [{"id": UNKNOWN, "type": "DEVICE"}]
        }
        for verb in ("associate", "disassociate")
    },
    "PUT /user/menus/{menu_id}": {"name": new_name(), "type": "FUNCTION"},
    "PUT /application/{application_id}": {"name": new_name()},
    "PUT /application/{application_id}/allowed-addresses": {"allowed_addresses": []},
    "PUT /dashboard/{dashboard_id}": {"name": new_name(), "widgets": []},
    "POST /dashboard/{dashboard_id}/canvas": {"name": new_name()},
    "POST /dashboard/{dashboard_id}/canvas/batch-delete": {"canvas_ids": [UNKNOWN]},
    "PUT /canvas/{canvas_id}": {"name": new_name(), "widgets": []},
    "PUT /device/{device_id}": {"name": new_name()},
    "PUT /device/{device_id}/location": {"latitude": 1, "longitude": 2},
    "POST /device/{device_id}/properties": {"properties": {"led": True}},
    "POST /device/{device_id}/services/call": {"service_id": "reboot"},
    "PUT /device-group/{group_id}": {"name": new_name()},
    "PUT /alarm-rules/{rule_id}": {
        "name": "matrix",
        "severity": "INFO",
        "condition": {"type": "SILENCE", "seconds": 60},
        "device_id": UNKNOWN,
    },
    "PUT /entity/tags/{tag_id}": {"name": "matrix", "color": "#ffffff"},
    "PUT /entity/{entity_id}": {"name": new_name()},
    "PUT /credentials/{credential_id}": {"access_secret": "matrix-secret"},
    "POST /credentials": {
        "credentials_type": "SMTP",
        "access_key": new_name(),
    },
    "PUT /product/{model}/codec": {"script": "function Decode() {}"},
    "POST /product/{model}/codec/test": {"port": 1, "hex": "00"},
    "POST /product/{model}/codec/redecode": {"dry": True},
    "PUT /product/{model}/codec/healing": {"on": False},
    "PUT /workflow/flows/{flow_id}": {"name": new_name(), "remark": ""},
}
"""Bodies that are right where an operation names a resource in its path; `{}` elsewhere."""


@cache
def list_operations() -> list[tuple[str, GuardedOperation]]:
    """Every operation of users, applications and devices, with its service."""
    return [one for one in apps.operations() if one[1].path not in PRIVATE]


@cache
def list_requests() -> list[GuardedOperation]:
    """Those that are no sockets."""
    return [one for _, one in list_operations() if one.method != WEBSOCKET]


def name_of(operation: GuardedOperation) -> str:
    """`GET /user`."""
    return f"{operation.method} {operation.path}"


def one_request_id(answer: httpx.Response) -> None:
    """The header has the request id, and a body in an envelope has the same one."""
    request_id = answer.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{32}", request_id)
    if answer.headers.get("content-type", "").startswith("application/json") and answer.content:
        body = answer.json()
        if isinstance(body, dict) and "status" in body:
            assert request_id == body.get("requestId", body.get("request_id"))


@dataclass
class Cast:
    """Those who call, and what they name in paths."""

    api: Api
    admin: Console
    powerless: Console
    holder: Console
    """Is granted an integration and a dashboard, so that what is unknown to it is 404."""
    foreign: Console
    device: tuple[str, str]
    """SN and key."""
    role: str
    """The role of `holder`."""
    menus: dict[str, str]
    targets: dict[str, str]
    """Path parameters that name something of the tenant."""

    async def hold(self, functions: frozenset[str]) -> None:
        """Let `holder` have exactly these functions."""
        ids = [self.menus[function] for function in functions]
        await self.admin.set_menu_ids(self.role, ids)

    async def ask(
        self, operation: GuardedOperation, *, token: str = "", known: bool, **more: Any
    ) -> httpx.Response:
        """Call an operation on what there is (`known`), or not; the answer has a request id."""
        granted = {
            "sn": self.device[0],
            "integration_id": DIRECT_INTEGRATION,
            "credentials_type": "SMTP",
        }
        unknown = dict.fromkeys(self.targets, UNKNOWN) | granted
        path = operation.path.format_map(self.targets if known else unknown)
        body = None if operation.method == "GET" else BODIES.get(name_of(operation), {})
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        answer = await self.api.http.request(
            operation.method, path, json=body, headers=headers, **more
        )
        one_request_id(answer)
        return answer


async def make_cast(api: Api, admin: Console, foreign: Console) -> Cast:
    """Make callers of every sort, and one resource of each kind."""
    powerless, holder = await admin.person(), await admin.person()
    role = await admin.add_role(users=(holder.id,))
    grants = [
        {"id": DIRECT_INTEGRATION, "type": "INTEGRATION"},
        {"id": await add_dashboard(admin), "type": "DASHBOARD"},
    ]
    await admin.does("POST", f"/user/roles/{role}/associate-resource", {"resources": grants})
    sn = new_sn()
    device_id = await api.add(sn)
    key = (await api.done("POST", f"/devices/{device_id}/credentials"))["key"]
    menus = await admin.menu_ids()
    application = await admin.done("POST", "/application", {"name": new_name()})
    dashboard = await admin.done("POST", "/dashboard", {"name": new_name()})
    empty = {"name": new_name(), "design_data": '{"nodes":[],"edges":[]}'}
    flow = await admin.done("POST", "/workflow/flows/design", empty)
    entity = (await admin.done("GET", f"/device/{device_id}"))["entities"][0]
    tag = {"name": new_name("t")[:25], "color": "#ffffff"}
    smtp = await admin.done("GET", "/credentials/default/SMTP")
    silent = {"type": "SILENCE", "seconds": 3600}
    rule = {"name": "matrix", "severity": "INFO", "condition": silent, "device_id": device_id}
    targets = {
        "user_id": await admin.add_user(),
        "role_id": await admin.add_role(),
        "session_id": UNKNOWN,
        "menu_id": menus[Function.DEVICE_VIEW],
        "application_id": application["application_id"],
        "device_id": str(device_id),
        "entity_id": entity["id"],
        "rule_id": (await admin.done("POST", "/alarm-rules", rule))["id"],
        "group_id": (await admin.done("POST", "/device-group", {"name": new_name()}))["id"],
        "tag_id": (await admin.done("POST", "/entity/tags", tag))["id"],
        "dashboard_id": dashboard["dashboard_id"],
        "canvas_id": dashboard["main_canvas_id"],
        "ticket": UNKNOWN,
        "key": UNKNOWN,
        "import_id": UNKNOWN,  # nothing has been imported
        "integration_id": UNKNOWN,  # those that exist are of every tenant
        "name": UNKNOWN,
        "credential_id": smtp["id"],
        "credentials_type": "SMTP",
        "access_key": UNKNOWN,
        "rest": UNKNOWN,
        "task_id": UNKNOWN,
        "flow_id": flow["id"],
        "log_id": UNKNOWN,  # the flow has not run
        "token": UNKNOWN,
        "sn": sn,
        "model": MODEL,
        "version": "v1.0",
    }
    return Cast(api, admin, powerless, holder, foreign, (sn, key), role, menus, targets)
