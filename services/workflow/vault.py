"""The secrets in designs: kept encrypted, with marks in their place.

A mark (`******` and 26 letters) says nothing of its secret, and stands for it wherever the
design goes: an editor reads it, shows it as the password that it takes it for, and saves it
again. The same secret has the same mark, so that saving it twice makes no other version. It
is sealed for its tenant, kind of node, field and destination: who can change where a node
sends to is not sent the secret that way.

Parameter structs say where secrets are (`secret=True`). Those of entries stay in the design: their
author has to read them again (the token of a hook is an address).

`flow_secrets`: `{_id: mark, tenant, sealed, flows}`: `flows` are those with a version that has the
mark; the secret goes with the last of them.
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
from services.workflow.graph.design import DesignInvalid, Reason, component_of
from services.workflow.nodes.base import Registry, Step
from services.workflow.nodes.parameters import Parameters

Path = tuple[str, ...]
"""Names from the parameters inwards, as designs spell them."""

HARMLESS = frozenset({"accept", "accept-language", "content-type", "user-agent"})
"""Names of a map of secrets (headers of a request) whose values are none."""
HIDDEN = "is hidden, and is not known for what the node is connected to now; type it again"
_PURPOSE = b"marks of secrets in flows"
_DIGEST = 16
"""Bytes of a mark."""
_PATTERN = re.compile(r"\*{6}[a-z2-7]{26}")
_MARK = _PATTERN.fullmatch
Node = dict[str, Any]


class SecretField(msgspec.Struct, frozen=True):
    """One secret of a node: `holder[name]` is its text."""

    node: Node
    holder: dict[str, Any]
    name: str
    field: str
    """`parameters.emailConfig.smtpConfig.password`."""
    destination: str
    """What the secret is sent to; empty when it is sent nowhere."""

    @property
    def text(self) -> Any:
        """The secret or its mark; a draft may have anything."""
        return self.holder[self.name]

    @property
    def has_mark(self) -> bool:
        """Whether a mark is in the place of the secret."""
        return isinstance(self.text, str) and bool(_MARK(self.text))

    def context(self, tenant: str) -> str:
        """What the secret is sealed for."""
        bound = [tenant, component_of(self.node), self.field, self.destination]
        return msgspec.json.encode(bound).decode()


def secret_fields(node: Node, registry: Registry) -> Iterator[SecretField]:
    """The secrets of a node of a design; a draft may have anything anywhere."""
    kind = registry.find(component_of(node))
    data = node.get("data")
    parameters = data.get("parameters") if isinstance(data, dict) else None
    if not isinstance(kind, Step) or not isinstance(parameters, dict):
        return
    destination = _destination(parameters, kind.parameters.secrets_go_to)
    struct: type[Parameters] = kind.parameters
    for path in secret_paths(struct):
        holder, name = _at(parameters, path[:-1]), path[-1]
        field = ".".join(("parameters", *path))
        value = holder.get(name) if isinstance(holder, dict) else None
        if isinstance(value, dict):
            for key in value:
                if key.lower() not in HARMLESS:
                    yield SecretField(node, value, key, f"{field}.{key:.60}", destination)
        elif isinstance(holder, dict) and isinstance(value, str):
            yield SecretField(node, holder, name, field, destination)


@lru_cache(maxsize=100)
def secret_paths(parameters: type[Parameters]) -> tuple[Path, ...]:
    """The fields that are marked as secret, at any depth."""
    return tuple(_paths(type_info(parameters), ()))


def _paths(kind: Type, path: Path) -> Iterator[Path]:
    if isinstance(kind, UnionType):
        for one in kind.types:
            if not isinstance(one, NoneType):
                yield from _paths(one, path)
    elif isinstance(kind, Metadata):
        if (kind.extra or {}).get("secret"):
            yield path
        else:
            yield from _paths(kind.type, path)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            yield from _paths(field.type, (*path, field.encode_name))


def _at(value: Any, path: Path) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _destination(parameters: dict[str, Any], path: Path) -> str:
    """The host, or the beginning of a URL up to its path."""
    found = _at(parameters, path) if path else ""
    text = found.strip() if isinstance(found, str) else ""
    return "/".join(text.split("/")[:3]) if "://" in text else text


class Concealed(msgspec.Struct, frozen=True):
    """A design with marks in it."""

    text: str
    given: dict[str, str] = {}
    """Sealed secrets that came with it, by their marks."""
    marks: frozenset[str] = frozenset()
    """All that are in it."""


class SecretStore:
    """Reads and writes sealed secrets."""

    def __init__(self, database: Database) -> None:
        self._secrets = database["flow_secrets"]

    async def sealed(self, tenant: str, marks: Collection[str]) -> dict[str, str]:
        """Sealed secrets by mark; what is unknown is missing."""
        found = self._secrets.find({"_id": {"$in": list(marks)}, "tenant": tenant})
        return {row["_id"]: row["sealed"] async for row in found}

    async def keep(self, tenant: str, flow_id: int, concealed: Concealed, session: Session) -> None:
        """Add secrets that are new, and note that a flow has them and the other marks."""
        also = {"$addToSet": {"flows": flow_id}}
        for mark, sealed in concealed.given.items():
            key = {"_id": mark, "tenant": tenant}
            change = {**also, "$setOnInsert": {"sealed": sealed}}
            await self._secrets.update_one(key, change, upsert=True, session=session)
        others = [one for one in concealed.marks if one not in concealed.given]
        if others:
            query = {"_id": {"$in": others}, "tenant": tenant}
            await self._secrets.update_many(query, also, session=session)

    async def keep_only(
        self, tenant: str, flow_id: int, marks: Collection[str], session: Session
    ) -> None:
        """A flow has no other marks any more: delete what no other flow has either."""
        query = {"tenant": tenant, "flows": flow_id, "_id": {"$nin": list(marks)}}
        await self._secrets.update_many(query, {"$pull": {"flows": flow_id}}, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)

    async def forget(self, tenant: str, flow_ids: Sequence[int], session: Session) -> None:
        """Flows are deleted: delete what no other one has."""
        query = {"tenant": tenant, "flows": {"$in": list(flow_ids)}}
        change = {"$pull": {"flows": {"$in": list(flow_ids)}}}
        await self._secrets.update_many(query, change, session=session)
        await self._secrets.delete_many({"tenant": tenant, "flows": []}, session=session)


async def create_indexes(database: Database) -> None:
    """Make what the queries above need."""
    await database["flow_secrets"].create_index([("tenant", 1), ("flows", 1)])


class Vault:
    """The secrets of flows, sealed with one key (32 bytes, base64url without padding)."""

    def __init__(self, secrets: SecretStore, registry: Registry, key: str) -> None:
        self._secrets = secrets
        self._registry = registry
        self._seal = Seal(key)
        self._key = hmac.digest(base64.urlsafe_b64decode(key + "="), _PURPOSE, "sha256")

    def conceal(self, tenant: str, text: str) -> Concealed:
        """A design without its secrets; `text` is that of one that may be stored.

        A reference is no secret, and stays.
        """
        design = msgspec.json.decode(text)
        given: dict[str, str] = {}
        marks: set[str] = set()
        for secret in _secrets_of(_nodes(design), self._registry):
            mark = secret.text
            if not isinstance(mark, str) or not mark or "#{" in mark:
                continue
            if not secret.has_mark:
                context = secret.context(tenant)
                sealed = self._seal.seal(mark, context)
                mark = secret.holder[secret.name] = self._mark(mark, context)
                given[mark] = sealed
            marks.add(mark)
        written = msgspec.json.encode(design).decode() if given else text
        return Concealed(written, given, frozenset(marks))

    async def reveal(self, tenant: str, text: str, given: Mapping[str, str] | None = None) -> str:
        """A design, or one node, as it is run; `given` are secrets that are not stored yet.

        Raises `DesignInvalid` naming marks that stand for nothing here. What is no JSON is
        given back: whoever reads it says so.
        """
        try:
            found, nodes = _read(text)
        except (msgspec.DecodeError, RecursionError):
            return text
        hidden = [one for one in _secrets_of(nodes, self._registry) if one.has_mark]
        if not hidden:
            return text
        sealed = await self._secrets.sealed(tenant, [one.text for one in hidden])
        sealed |= given or {}
        reasons = [
            Reason(str(one.node.get("id")), one.field, HIDDEN)
            for one in hidden
            if not self._revealed(tenant, one, sealed)
        ]
        DesignInvalid.raise_for(reasons)
        return msgspec.json.encode(found).decode()

    def _revealed(self, tenant: str, secret: SecretField, sealed: Mapping[str, str]) -> bool:
        try:
            text = self._seal.open(sealed[secret.text], secret.context(tenant))
        except (KeyError, SealBroken):
            return False
        secret.holder[secret.name] = text
        return True

    def _mark(self, secret: str, context: str) -> str:
        text = msgspec.json.encode([context, secret])
        digest = hmac.digest(self._key, text, "sha256")[:_DIGEST]
        return "******" + base64.b32encode(digest).decode().rstrip("=").lower()


def contexts_in(tenant: str, text: str, registry: Registry) -> dict[str, str]:
    """What the secrets of a design are sealed for, by their marks."""
    try:
        _, nodes = _read(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    hidden = (one for one in _secrets_of(nodes, registry) if one.has_mark)
    return {one.text: one.context(tenant) for one in hidden}


def marks_in(text: str) -> set[str]:
    """All that may be marks in a design."""
    return set(_PATTERN.findall(text))


def _secrets_of(nodes: Iterable[Node], registry: Registry) -> Iterator[SecretField]:
    return (one for node in nodes for one in secret_fields(node, registry))


def _nodes(design: Any) -> list[Node]:
    nodes = design.get("nodes") if isinstance(design, dict) else None
    return [one for one in nodes if isinstance(one, dict)] if isinstance(nodes, list) else []


def _read(text: str) -> tuple[Any, list[Node]]:
    """A design or node as JSON, and its nodes; raises `msgspec.DecodeError`, `RecursionError`."""
    found = msgspec.json.decode(text)
    if isinstance(found, dict) and "nodes" not in found:
        return found, [found]
    return found, _nodes(found)
