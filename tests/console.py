"""What tests of one service of the management API need: users, and an `auth` that answers."""

import re
from collections import defaultdict
from typing import Any, ClassVar, Self

from httpx import AsyncClient, Response

from libs.common.bus import Bus, RpcServer
from libs.common.contracts.access import (
    ForgetResources,
    GrantedResources,
    ResourceRef,
    ResourceType,
    ShareWithRoles,
    UserRef,
)
from libs.common.contracts.auth import Done
from libs.common.errors import UpstreamFailed
from libs.common.identity import PRINCIPAL_HEADER, HeaderSigner, Principal, PrincipalKind
from libs.common.identity.functions import Function
from tests.placeholders import check_placeholders

_FIELDS = {
    ResourceType.INTEGRATION: ("integrations", str),
    ResourceType.DEVICE: ("devices", int),
    ResourceType.DEVICE_GROUP: ("groups", int),
    ResourceType.ENTITY: ("entities", int),
    ResourceType.DASHBOARD: ("dashboards", int),
    ResourceType.WORKFLOW: ("workflows", int),
}


class Grants:
    """Stands for `auth`: grants by user, with a version that grows with every change."""

    def __init__(self, bus: Bus) -> None:
        self.version = 0
        self.renew()
        self._rpc = RpcServer(bus, "auth")
        self._rpc.offer("get_grants", UserRef, self._get)
        self._rpc.offer("share_with_roles", ShareWithRoles, self._share)
        self._rpc.offer("forget_resources", ForgetResources, self._forget)

    def renew(self) -> None:
        """Take everything from everybody."""
        self.version += 1
        self.asked = 0
        self.refuses = ""
        """Why nothing can be shared."""
        self._held: dict[int, set[ResourceRef]] = defaultdict(set)

    async def __aenter__(self) -> Self:
        await self._rpc.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._rpc.stop()

    def give(self, user_id: int, kind: ResourceType, *ids: Any) -> None:
        """Grant resources to a user."""
        self.version += 1
        self._held[user_id] |= {ResourceRef(str(id_), kind) for id_ in ids}

    def take(self, user_id: int) -> None:
        """Take everything from a user."""
        self.version += 1
        self._held[user_id].clear()

    def held(self, user_id: int) -> set[ResourceRef]:
        """What a user has."""
        return self._held[user_id]

    async def _get(self, wanted: UserRef) -> GrantedResources:
        self.asked += 1
        found: dict[str, set[Any]] = defaultdict(set)
        for resource in self._held[wanted.user_id]:
            name, kind = _FIELDS[resource.type]
            found[name].add(kind(resource.id))
        return GrantedResources(
            version=self.version, **{name: frozenset(ids) for name, ids in found.items()}
        )

    async def _share(self, wanted: ShareWithRoles) -> Done:
        if self.refuses:
            raise UpstreamFailed(self.refuses)
        self.version += 1
        self._held[wanted.user_id] |= set(wanted.resources)
        return Done()

    async def _forget(self, wanted: ForgetResources) -> Done:
        self.version += 1
        for held in self._held.values():
            held.difference_update(wanted.resources)
        return Done()


class User:
    """A user who calls one service directly."""

    def __init__(
        self, http: AsyncClient, signer: HeaderSigner, principal: Principal, grants: Grants
    ) -> None:
        self.principal = principal
        self._http = http
        self._signer = signer
        self._grants = grants

    async def ask(self, method: str, path: str, body: Any = None, **form: Any) -> Response:
        """Call as of now, as the gateway would: with the newest version of the grants.

        `form` is a multipart form as httpx takes it: `data` and `files`.
        """
        known = Principal(
            kind=PrincipalKind.USER,
            tenant=self.principal.tenant,
            subject=self.principal.subject,
            name=self.principal.name,
            functions=self.principal.functions,
            super_admin=self.principal.super_admin,
            access=self._grants.version,
        )
        answer: Response = await self._http.request(
            method, path, json=body, headers={PRINCIPAL_HEADER: self._signer.sign(known)}, **form
        )
        return answer

    async def done(self, method: str, path: str, body: Any = None, **form: Any) -> Any:
        """`data` of a success, whose envelope is exactly the specified one."""
        answer = await self.ask(method, path, body, **form)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:1000])
        content = answer.json()
        assert set(content) - {"data"} == {"status", "request_id"}, content
        assert content["status"] == "Success"
        assert re.fullmatch("[0-9a-f]{32}", content["request_id"])
        return content.get("data")

    async def refused(
        self,
        status: int,
        method: str,
        path: str,
        body: Any = None,
        *,
        field: str = "",
        code: str = "",
        **form: Any,
    ) -> Any:
        """The body of a refusal, which names `field` and has `code` when they are given."""
        answer = await self.ask(method, path, body, **form)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:1000])
        content = answer.json()
        assert content["status"] == "Failed"
        assert content["error_message"]
        if field:
            assert content.get("detail_message") == field, content
        check_placeholders(content)
        if code:
            assert content["error_code"] == code, content
        return content


class AskedByUsers:
    """A running service that users ask."""

    http: AsyncClient
    signer: HeaderSigner
    grants: Grants
    usual: ClassVar[frozenset[Function]] = frozenset()
    """What a user may do unless a test says it."""

    def user(
        self,
        user_id: int = 7,
        *functions: Function,
        tenant: str = "default",
        super_admin: bool = False,
    ) -> User:
        """A user with these functions, or the usual ones."""
        principal = Principal(
            kind=PrincipalKind.USER,
            tenant=tenant,
            subject=str(user_id),
            name=f"user{user_id}@example.com",
            functions=frozenset() if super_admin else frozenset(functions) or self.usual,
            super_admin=super_admin,
        )
        return User(self.http, self.signer, principal, self.grants)

    def admin(self, tenant: str = "default") -> User:
        """A super-admin."""
        return self.user(1, tenant=tenant, super_admin=True)
