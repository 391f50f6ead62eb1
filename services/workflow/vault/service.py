"""The vault: puts marks in the place of the secrets of designs, and secrets in that of marks.

A mark (`******` and 26 letters) says nothing of its secret, and stands for it wherever the
design goes: an editor reads it, shows it as the password that it takes it for, and saves it
again. The same secret has the same mark, so that saving it twice makes no other version. It
is sealed for its tenant, kind of node, field and destination: who can change where a node
sends to is not sent the secret that way.
"""

import base64
import hmac
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from libs.common.identity.seal import Seal, SealBroken
from services.workflow.graph.design import DesignInvalid, Reason, component_of
from services.workflow.nodes.base import Registry
from services.workflow.vault.fields import Place, places
from services.workflow.vault.store import SecretStore

HIDDEN = "is hidden, and is not known for what the node is connected to now; type it again"
_PURPOSE = b"marks of secrets in flows"
_DIGEST = 16
"""Bytes of a mark."""
_PATTERN = re.compile(r"\*{6}[a-z2-7]{26}")
_MARK = _PATTERN.fullmatch

Node = dict[str, Any]


class Concealed(msgspec.Struct, frozen=True):
    """A design with marks in it."""

    text: str
    given: dict[str, str] = {}
    """Sealed secrets that came with it, by their marks."""
    marks: frozenset[str] = frozenset()
    """All that are in it."""


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
        for node in _nodes(design):
            for place in places(node, self._registry):
                secret = place.holder[place.name]
                if not isinstance(secret, str) or not secret or "#{" in secret:
                    continue
                mark = secret
                if not _MARK(secret):
                    context = _context(tenant, node, place)
                    mark = self._mark(secret, context)
                    given[mark] = self._seal.seal(secret, context)
                    place.holder[place.name] = mark
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
        hidden = [(node, one) for node in nodes for one in places(node, self._registry)]
        marks = [value for _, one in hidden if _is_mark(value := one.holder[one.name])]
        if not marks:
            return text
        sealed = {**await self._secrets.sealed(tenant, marks), **(given or {})}
        reasons = [
            Reason(str(node.get("id")), place.field, HIDDEN)
            for node, place in hidden
            if not self._revealed(tenant, node, place, sealed)
        ]
        if reasons:
            raise DesignInvalid(reasons)
        return msgspec.json.encode(found).decode()

    def _revealed(self, tenant: str, node: Node, place: Place, sealed: Mapping[str, str]) -> bool:
        mark = place.holder[place.name]
        if not _is_mark(mark):
            return True
        if mark not in sealed:
            return False
        try:
            secret = self._seal.open(sealed[mark], _context(tenant, node, place))
        except SealBroken:
            return False
        place.holder[place.name] = secret
        return True

    def _mark(self, secret: str, context: str) -> str:
        text = msgspec.json.encode([context, secret])
        digest = hmac.digest(self._key, text, "sha256")[:_DIGEST]
        return "******" + base64.b32encode(digest).decode().rstrip("=").lower()


def _is_mark(value: Any) -> bool:
    return isinstance(value, str) and bool(_MARK(value))


def contexts_in(tenant: str, text: str, registry: Registry) -> dict[str, str]:
    """What the secrets of a design are sealed for, by their marks."""
    try:
        _, nodes = _read(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    hidden = ((node, one) for node in nodes for one in places(node, registry))
    return {
        str(mark): _context(tenant, node, place)
        for node, place in hidden
        if _is_mark(mark := place.holder[place.name])
    }


def marks_in(text: str) -> set[str]:
    """All that may be marks in a design."""
    return set(_PATTERN.findall(text))


def _context(tenant: str, node: Node, place: Place) -> str:
    bound = [tenant, component_of(node), place.field, place.destination]
    return msgspec.json.encode(bound).decode()


def _nodes(design: Any) -> list[Node]:
    nodes = design.get("nodes") if isinstance(design, dict) else None
    return [one for one in nodes if isinstance(one, dict)] if isinstance(nodes, list) else []


def _read(text: str) -> tuple[Any, list[Node]]:
    """A design or node as JSON, and its nodes; raises `msgspec.DecodeError`, `RecursionError`."""
    found = msgspec.json.decode(text)
    if isinstance(found, dict) and "nodes" not in found:
        return found, [found]
    return found, _nodes(found)
