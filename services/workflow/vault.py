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
from services.workflow.graph.design import DesignFaultReason, DesignInvalid, read_component_name
from services.workflow.nodes.base import NodeRegistry, Step
from services.workflow.nodes.parameters import Parameters

ParameterPath = tuple[str, ...]
"""Names of nested fields below the parameters of a node, in the spelling of designs."""

PUBLIC_HEADER_NAMES = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Lower-case names of request headers whose values are not secret."""
UNKNOWN_MARK_REASON = "is hidden and not stored for this destination; enter it again"
_MARK_KEY_PURPOSE = b"marks of secrets in flows"
_MARK_BYTES = 16
"""Bytes of the digest in a mark."""
_MARK_PATTERN = re.compile(r"\*{6}[a-z2-7]{26}")
_match_mark = _MARK_PATTERN.fullmatch
DesignNodeJson = dict[str, Any]


class SecretField(msgspec.Struct, frozen=True):
    """A secret of a node: `holder[name]` is its text."""

    node: DesignNodeJson
    holder: dict[str, Any]
    name: str
    field: str
    """Path of the secret in the node, such as `parameters.emailConfig.smtpConfig.password`."""
    destination: str
    """Host or URL that gets the secret; empty if it is sent nowhere."""

    @property
    def secret_or_mark(self) -> Any:
        """Return the secret or its mark; a draft may have any value."""
        return self.holder[self.name]

    @property
    def has_mark(self) -> bool:
        """Return whether the field has a mark instead of the secret."""
        return isinstance(self.secret_or_mark, str) and bool(_match_mark(self.secret_or_mark))

    def encryption_context(self, tenant: str) -> str:
        """Return the encryption context of the secret."""
        bound = [tenant, read_component_name(self.node), self.field, self.destination]
        return msgspec.json.encode(bound).decode()


def find_secret_fields(node: DesignNodeJson, registry: NodeRegistry) -> Iterator[SecretField]:
    """Yield the secrets of a node, and the marks that replace secrets.

    The node may be an invalid draft.
    """
    kind = registry.find(read_component_name(node))
    data = node.get("data")
    parameters = data.get("parameters") if isinstance(data, dict) else None
    if not isinstance(kind, Step) or not isinstance(parameters, dict):
        return
    destination = _read_destination(parameters, kind.parameters.secret_destination_path)
    struct: type[Parameters] = kind.parameters
    for path in find_secret_paths(struct):
        holder, name = _value_at(parameters, path[:-1]), path[-1]
        field = ".".join(("parameters", *path))
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, dict):
            for key in value:
                if key.lower() not in PUBLIC_HEADER_NAMES:
                    yield SecretField(node, value, key, f"{field}.{key:.60}", destination)
        elif isinstance(holder, dict) and isinstance(value, str):
            yield SecretField(node, holder, name, field, destination)


@lru_cache(maxsize=100)
def find_secret_paths(parameters: type[Parameters]) -> tuple[ParameterPath, ...]:
    """Return the paths of secret fields at any depth."""
    return tuple(_iterate_secret_paths(type_info(parameters), ()))


def _iterate_secret_paths(kind: Type, path: ParameterPath) -> Iterator[ParameterPath]:
    if isinstance(kind, UnionType):
        for option in kind.types:
            if not isinstance(option, NoneType):
                yield from _iterate_secret_paths(option, path)
    elif isinstance(kind, Metadata):
        if (kind.extra or {}).get("secret"):
            yield path
        else:
            yield from _iterate_secret_paths(kind.type, path)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _iterate_secret_paths(field.type, (*path, field.encode_name))


def _value_at(value: Any, path: ParameterPath) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _read_destination(parameters: dict[str, Any], path: ParameterPath) -> str:
    """Return the host, or scheme and host of a URL; empty without a destination."""
    destination = _value_at(parameters, path) if path else ""
    text = destination.strip() if isinstance(destination, str) else ""
    return "/".join(text.split("/")[:3]) if "://" in text else text


class ConcealedDesign(msgspec.Struct, frozen=True):
    """A design whose secrets are replaced by marks."""

    text: str
    new_secrets: dict[str, str] = {}
    """New encrypted secrets by the mark that replaces them in the design."""
    marks: frozenset[str] = frozenset()
    """All marks in the design."""


class SecretStore:
    """The collection `flow_secrets`."""

    def __init__(self, database: Database) -> None:
        self._secrets = database["flow_secrets"]

    async def find_sealed_secrets(self, tenant: str, marks: Collection[str]) -> dict[str, str]:
        """Return encrypted secrets by mark; unknown marks are missing."""
        cursor = self._secrets.find({"_id": {"$in": list(marks)}, "tenant": tenant})
        return {row["_id"]: row["sealed"] async for row in cursor}

    async def add_flow_to_secrets(
        self, tenant: str, flow_id: int, concealed: ConcealedDesign, session: Session
    ) -> None:
        """Store new secrets, and add the flow to each secret with a mark in its design."""
        added_flow = {"$addToSet": {"flows": flow_id}}
        for mark, sealed in concealed.new_secrets.items():
            key = {"_id": mark, "tenant": tenant}
            change = {**added_flow, "$setOnInsert": {"sealed": sealed}}
            await self._secrets.update_one(key, change, upsert=True, session=session)
        others = [mark for mark in concealed.marks if mark not in concealed.new_secrets]
        if others:
            query = {"_id": {"$in": others}, "tenant": tenant}
            await self._secrets.update_many(query, added_flow, session=session)

    async def remove_flow_from_others(
        self, tenant: str, flow_id: int, marks: Collection[str], session: Session
    ) -> None:
        """Remove a flow from secrets except those of `marks`; delete unused secrets."""
        query = {"tenant": tenant, "flows": flow_id, "_id": {"$nin": list(marks)}}
        await self._secrets.update_many(query, {"$pull": {"flows": flow_id}}, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)

    async def remove_flows(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """Remove deleted flows from all secrets; delete secrets without flows."""
        query = {"tenant": tenant, "flows": {"$in": list(flow_ids)}}
        change = {"$pull": {"flows": {"$in": list(flow_ids)}}}
        await self._secrets.update_many(query, change, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)


class Vault:
    """Encrypts secrets of flows with one key (32 bytes, base64url without padding)."""

    def __init__(self, secrets: SecretStore, registry: NodeRegistry, key: str) -> None:
        self._secrets = secrets
        self._registry = registry
        self._seal = Seal(key)
        self._key = hmac.digest(base64.urlsafe_b64decode(key + "="), _MARK_KEY_PURPOSE, "sha256")

    def replace_secrets_by_marks(self, tenant: str, text: str) -> ConcealedDesign:
        """Return a storable design with marks instead of secrets.

        Values that contain a reference are not secret and stay.
        """
        design = msgspec.json.decode(text)
        new_secrets: dict[str, str] = {}
        marks: set[str] = set()
        for secret in _find_secrets(_list_nodes(design), self._registry):
            mark = secret.secret_or_mark
            if not isinstance(mark, str) or not mark or "#{" in mark:
                continue
            if not secret.has_mark:
                context = secret.encryption_context(tenant)
                sealed = self._seal.seal(mark, context)
                mark = secret.holder[secret.name] = self._create_mark(mark, context)
                new_secrets[mark] = sealed
            marks.add(mark)
        written = msgspec.json.encode(design).decode() if new_secrets else text
        return ConcealedDesign(written, new_secrets, frozenset(marks))

    async def replace_marks_by_secrets(
        self, tenant: str, text: str, unsaved_secrets: Mapping[str, str] | None = None
    ) -> str:
        """Return a design or node with secrets instead of marks.

        `unsaved_secrets` are encrypted secrets by mark that are not stored yet.

        Raises `DesignInvalid` for marks that are unknown in their context. A text that is not JSON
        is returned unchanged, because its parser reports the error.
        """
        try:
            content, nodes = _decode_design_or_node(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        hidden = [secret for secret in _find_secrets(nodes, self._registry) if secret.has_mark]
        if not hidden:
            return text
        sealed = await self._secrets.find_sealed_secrets(
            tenant, [secret.secret_or_mark for secret in hidden]
        )
        sealed |= unsaved_secrets or {}
        reasons = [
            DesignFaultReason(str(secret.node.get("id")), secret.field, UNKNOWN_MARK_REASON)
            for secret in hidden
            if not self._restore_secret(tenant, secret, sealed)
        ]
        DesignInvalid.raise_if_any(reasons)
        return msgspec.json.encode(content).decode()

    def _restore_secret(self, tenant: str, secret: SecretField, sealed: Mapping[str, str]) -> bool:
        try:
            text = self._seal.open(sealed[secret.secret_or_mark], secret.encryption_context(tenant))
        except (KeyError, SealBroken):
            return False
        secret.holder[secret.name] = text
        return True

    def _create_mark(self, secret: str, context: str) -> str:
        text = msgspec.json.encode([context, secret])
        digest = hmac.digest(self._key, text, "sha256")[:_MARK_BYTES]
        return "******" + base64.b32encode(digest).decode().rstrip("=").lower()


def map_marks_to_contexts(tenant: str, text: str, registry: NodeRegistry) -> dict[str, str]:
    """Return the encryption context of each secret that a mark replaces, by mark.

    `text` is a design or a node. The result is empty if the text is not JSON.
    """
    try:
        _, nodes = _decode_design_or_node(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    hidden = (secret for secret in _find_secrets(nodes, registry) if secret.has_mark)
    return {secret.secret_or_mark: secret.encryption_context(tenant) for secret in hidden}


def find_marks(text: str) -> set[str]:
    """Return all texts in a design that look like marks."""
    return set(_MARK_PATTERN.findall(text))


def _find_secrets(nodes: Iterable[DesignNodeJson], registry: NodeRegistry) -> Iterator[SecretField]:
    return (secret for node in nodes for secret in find_secret_fields(node, registry))


def _list_nodes(design: Any) -> list[DesignNodeJson]:
    nodes = design.get("nodes") if isinstance(design, dict) else None
    return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def _decode_design_or_node(text: str) -> tuple[Any, list[DesignNodeJson]]:
    """Decode the JSON text of a design or a node; return the content and its nodes.

    Raises `msgspec.DecodeError` and `RecursionError`.
    """
    content = msgspec.json.decode(text)
    if isinstance(content, dict) and "nodes" not in content:
        return content, [content]
    return content, _list_nodes(content)
