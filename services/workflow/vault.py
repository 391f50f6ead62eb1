"""Encrypted secrets of designs, replaced by marks.

A mark (`******` and 26 letters) reveals nothing about its secret and replaces it in designs.
Editors show it as a password and save it again. The same secret has the same mark, so saving it
again creates no new version. A secret is encrypted for its tenant, node type, field and
destination, so users who change the destination of a node do not receive the secret.

Parameter structs define which fields are secret (`secret=True`). Secrets of entries stay in the
design, because their author needs to read them (the token of a hook is part of an address).

`flow_secrets`: `{_id: mark, tenant, sealed, flows}`. `flows` are the flows with a version that has
the mark; the secret is deleted with the last of them.
"""

import base64
import hmac
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.inspect import Metadata, NoneType, StructType, Type, UnionType, type_info

from libs.common.identity.seal import Seal, SealBroken
from libs.common.store.mongo import Database, Session
from services.workflow.graph.design import DesignInvalid, Reason, read_component
from services.workflow.nodes.base import Registry, Step
from services.workflow.nodes.parameters import Parameters

Path = tuple[str, ...]
"""Names from the parameters inwards, in the spelling of designs."""

PUBLIC_NAMES = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Names in a map of secrets (request headers) whose values are not secret."""
HIDDEN_REASON = "is hidden and not stored for this destination; enter it again"
_MARK_KEY_PURPOSE = b"marks of secrets in flows"
_MARK_BYTES = 16
"""Bytes of the digest in a mark."""
_MARK_PATTERN = re.compile(r"\*{6}[a-z2-7]{26}")
_match_mark = _MARK_PATTERN.fullmatch
Node = dict[str, Any]


class SecretField(msgspec.Struct, frozen=True):
    """A secret of a node: `holder[name]` is its text."""

    node: Node
    holder: dict[str, Any]
    name: str
    field: str
    """`parameters.emailConfig.smtpConfig.password`."""
    destination: str
    """Destination of the secret; empty without one."""

    @property
    def text(self) -> Any:
        """Return the secret or its mark; a draft may have any value."""
        return self.holder[self.name]

    @property
    def has_mark(self) -> bool:
        """Return whether the field has a mark instead of the secret."""
        return isinstance(self.text, str) and bool(_match_mark(self.text))

    def context(self, tenant: str) -> str:
        """Return the encryption context of the secret."""
        bound = [tenant, read_component(self.node), self.field, self.destination]
        return msgspec.json.encode(bound).decode()


def find_secret_fields(node: Node, registry: Registry) -> Iterator[SecretField]:
    """Yield the secrets of a node of a design, which may be an invalid draft."""
    kind = registry.find(read_component(node))
    data = node.get("data")
    parameters = data.get("parameters") if isinstance(data, dict) else None
    if not isinstance(kind, Step) or not isinstance(parameters, dict):
        return
    destination = _destination(parameters, kind.parameters.secrets_go_to)
    struct: type[Parameters] = kind.parameters
    for path in find_secret_paths(struct):
        holder, name = _value_at(parameters, path[:-1]), path[-1]
        field = ".".join(("parameters", *path))
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, dict):
            for key in value:
                if key.lower() not in PUBLIC_NAMES:
                    yield SecretField(node, value, key, f"{field}.{key:.60}", destination)
        elif isinstance(holder, dict) and isinstance(value, str):
            yield SecretField(node, holder, name, field, destination)


@lru_cache(maxsize=100)
def find_secret_paths(parameters: type[Parameters]) -> tuple[Path, ...]:
    """Return the paths of secret fields at any depth."""
    return tuple(_secret_paths(type_info(parameters), ()))


def _secret_paths(kind: Type, path: Path) -> Iterator[Path]:
    if isinstance(kind, UnionType):
        for option in kind.types:
            if not isinstance(option, NoneType):
                yield from _secret_paths(option, path)
    elif isinstance(kind, Metadata):
        if (kind.extra or {}).get("secret"):
            yield path
        else:
            yield from _secret_paths(kind.type, path)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _secret_paths(field.type, (*path, field.encode_name))


def _value_at(value: Any, path: Path) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _destination(parameters: dict[str, Any], path: Path) -> str:
    """Return the host, or the URL without its path."""
    destination = _value_at(parameters, path) if path else ""
    text = destination.strip() if isinstance(destination, str) else ""
    return "/".join(text.split("/")[:3]) if "://" in text else text


class ConcealedDesign(msgspec.Struct, frozen=True):
    """A design with marks."""

    text: str
    given: dict[str, str] = {}
    """New encrypted secrets by the mark that replaces them in the design."""
    marks: frozenset[str] = frozenset()
    """All marks in the design."""


class SecretStore:
    """The collection `flow_secrets`."""

    def __init__(self, database: Database) -> None:
        self._secrets = database["flow_secrets"]

    async def list_sealed(self, tenant: str, marks: Collection[str]) -> dict[str, str]:
        """Return encrypted secrets by mark; unknown marks are missing."""
        cursor = self._secrets.find({"_id": {"$in": list(marks)}, "tenant": tenant})
        return {row["_id"]: row["sealed"] async for row in cursor}

    async def keep(
        self, tenant: str, flow_id: int, concealed: ConcealedDesign, session: Session
    ) -> None:
        """Store new secrets, and add a flow to them and to other marks."""
        added_flow = {"$addToSet": {"flows": flow_id}}
        for mark, sealed in concealed.given.items():
            key = {"_id": mark, "tenant": tenant}
            change = {**added_flow, "$setOnInsert": {"sealed": sealed}}
            await self._secrets.update_one(key, change, upsert=True, session=session)
        others = [mark for mark in concealed.marks if mark not in concealed.given]
        if others:
            query = {"_id": {"$in": others}, "tenant": tenant}
            await self._secrets.update_many(query, added_flow, session=session)

    async def keep_only(
        self, tenant: str, flow_id: int, marks: Collection[str], session: Session
    ) -> None:
        """Remove a flow from all other marks; delete secrets without flows."""
        query = {"tenant": tenant, "flows": flow_id, "_id": {"$nin": list(marks)}}
        await self._secrets.update_many(query, {"$pull": {"flows": flow_id}}, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)

    async def forget(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """Remove deleted flows from all marks; delete secrets without flows."""
        query = {"tenant": tenant, "flows": {"$in": list(flow_ids)}}
        change = {"$pull": {"flows": {"$in": list(flow_ids)}}}
        await self._secrets.update_many(query, change, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)


class Vault:
    """Encrypts secrets of flows with one key (32 bytes, base64url without padding)."""

    def __init__(self, secrets: SecretStore, registry: Registry, key: str) -> None:
        self._secrets = secrets
        self._registry = registry
        self._seal = Seal(key)
        self._key = hmac.digest(base64.urlsafe_b64decode(key + "="), _MARK_KEY_PURPOSE, "sha256")

    def conceal(self, tenant: str, text: str) -> ConcealedDesign:
        """Return a storable design with marks instead of secrets.

        References are not secret and stay.
        """
        design = msgspec.json.decode(text)
        new_secrets: dict[str, str] = {}
        marks: set[str] = set()
        for secret in _find_secrets(_nodes(design), self._registry):
            mark = secret.text
            if not isinstance(mark, str) or not mark or "#{" in mark:
                continue
            if not secret.has_mark:
                context = secret.context(tenant)
                sealed = self._seal.seal(mark, context)
                mark = secret.holder[secret.name] = self._mask_secret(mark, context)
                new_secrets[mark] = sealed
            marks.add(mark)
        written = msgspec.json.encode(design).decode() if new_secrets else text
        return ConcealedDesign(written, new_secrets, frozenset(marks))

    async def reveal(
        self, tenant: str, text: str, unsaved_secrets: Mapping[str, str] | None = None
    ) -> str:
        """Return a design or node with its secrets; `unsaved_secrets` are unsaved secrets.

        Raises `DesignInvalid` for marks that are unknown in their context. A text that is not JSON
        is returned unchanged, because its parser reports the error.
        """
        try:
            content, nodes = _read(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        hidden = [secret for secret in _find_secrets(nodes, self._registry) if secret.has_mark]
        if not hidden:
            return text
        sealed = await self._secrets.list_sealed(tenant, [secret.text for secret in hidden])
        sealed |= unsaved_secrets or {}
        reasons = [
            Reason(str(secret.node.get("id")), secret.field, HIDDEN_REASON)
            for secret in hidden
            if not self._reveal(tenant, secret, sealed)
        ]
        DesignInvalid.raise_for(reasons)
        return msgspec.json.encode(content).decode()

    def _reveal(self, tenant: str, secret: SecretField, sealed: Mapping[str, str]) -> bool:
        try:
            text = self._seal.open(sealed[secret.text], secret.context(tenant))
        except (KeyError, SealBroken):
            return False
        secret.holder[secret.name] = text
        return True

    def _mask_secret(self, secret: str, context: str) -> str:
        text = msgspec.json.encode([context, secret])
        digest = hmac.digest(self._key, text, "sha256")[:_MARK_BYTES]
        return "******" + base64.b32encode(digest).decode().rstrip("=").lower()


def list_contexts(tenant: str, text: str, registry: Registry) -> dict[str, str]:
    """Return the encryption contexts of a design's secrets by mark."""
    try:
        _, nodes = _read(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    hidden = (secret for secret in _find_secrets(nodes, registry) if secret.has_mark)
    return {secret.text: secret.context(tenant) for secret in hidden}


def find_marks(text: str) -> set[str]:
    """Return all texts in a design that look like marks."""
    return set(_MARK_PATTERN.findall(text))


def _find_secrets(nodes: Iterable[Node], registry: Registry) -> Iterator[SecretField]:
    return (secret for node in nodes for secret in find_secret_fields(node, registry))


def _nodes(design: Any) -> list[Node]:
    nodes = design.get("nodes") if isinstance(design, dict) else None
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _read(text: str) -> tuple[Any, list[Node]]:
    """Return a design or node as JSON, and its nodes.

    Raises `msgspec.DecodeError` and `RecursionError`.
    """
    content = msgspec.json.decode(text)
    if isinstance(content, dict) and "nodes" not in content:
        return content, [content]
    return content, _nodes(content)
