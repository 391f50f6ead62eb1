"""A simulated device: plausible values of a TSL, and the execution of commands.

It has no connection; its owner sends its reports and replies.
"""

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from libs.common.clock import now_ms
from libs.common.lru_cache import LruCache
from libs.common.tsl import (
    ServiceSpec,
    TslDocument,
    ids_from_keys,
    plausible_params,
    plausible_properties,
    readable_values,
)

_REMEMBERED_COMMANDS = 1000

Values = dict[str, Any]


@dataclass(frozen=True)
class CommandOutcome:
    """The result of a command."""

    reply: Values
    report: Values = field(default_factory=dict)
    """Properties that the command changed, to be reported immediately."""


class SimulatedDevice:
    """A device with a TSL; several devices may share the document."""

    def __init__(
        self, document: TslDocument, rng: random.Random, settings: Values | None = None
    ) -> None:
        """`settings` are initial values of its writable properties."""
        self._rng = rng
        self._settings: Values = dict(settings or {})
        self._replies: LruCache[str, Values] = LruCache(_REMEMBERED_COMMANDS)
        self.measured: Values = {}
        """The last measurement."""
        self.adopt(document)

    def adopt(self, document: TslDocument) -> None:
        """Change to another TSL; keep the settings that are writable there."""
        self._document = document
        properties = ids_from_keys(document).properties
        self._top = {entry.id: entry.access_mode for entry in properties if "." not in entry.id}
        self._settings = {k: v for k, v in self._settings.items() if self._is_writable(k)}

    def measure(self) -> Values:
        """Return new plausible values near the last ones, and the unchanged settings."""
        self.measured = plausible_properties(self._document, self._rng, self.measured)
        self.measured |= self._readable(self._settings)
        return dict(self.measured)

    def handle(self, command: Values) -> CommandOutcome:
        """Execute a command; return the same reply for a repeated command.

        Raises `KeyError` for a message without a `commandId`.
        """
        command_id = str(command["commandId"])
        earlier_reply = self._replies.get(command_id)
        if earlier_reply is not None:
            return CommandOutcome(earlier_reply)
        changed, error = self._execute(command)
        reply: Values = {"commandId": command["commandId"]}
        reply |= {"status": "FAILED", "error": error} if error else {"status": "SUCCESS"}
        if not error and command.get("kind") == "CALL_SERVICE":
            reply["outputs"] = self._outputs(command["serviceId"])
        self._replies.put(command_id, reply)
        return CommandOutcome(reply, self._readable(changed))

    def serve(self, service: ServiceSpec) -> Values:
        """Return the properties that a service call sets; subclasses may override this."""
        return {}

    def _execute(self, command: Values) -> tuple[Values, str | None]:
        """Return the changed properties, or the reason why the command failed."""
        expires_at = command.get("expiresAt")
        if isinstance(expires_at, int) and expires_at < now_ms():
            return {}, "the command has expired"
        match command.get("kind"):
            case "SET_PROPERTIES":
                return self._change(command.get("properties") or {})
            case "SET_PROFILE":
                pairs = command.get("values") or []
                values_by_key = {pair["key"]: pair["value"] for pair in pairs}
                return self._change(
                    {k: v for k, v in values_by_key.items() if self._is_writable(k)}
                )
            case "CALL_SERVICE":
                service = self._find_service(command.get("serviceId"))
                if service is None:
                    return {}, f"no service {command.get('serviceId')}"
                return self._change(self.serve(service))
            case other:
                return {}, f"unknown kind {other}"

    def _change(self, values: Values) -> tuple[Values, str | None]:
        strangers = sorted(name for name in values if not self._is_writable(name))
        if strangers:
            return {}, f"not writable: {', '.join(strangers)}"
        for name, value in values.items():
            self._settings[name] = _merge(self._settings.get(name), value)
        return {name: self._settings[name] for name in values}, None

    def _is_writable(self, name: str) -> bool:
        return "W" in self._top.get(name, "")

    def _readable(self, values: Values) -> Values:
        """Return a copy of the readable values."""
        return copy.deepcopy(readable_values(self._document, values))

    def _find_service(self, service: object) -> ServiceSpec | None:
        return next((entry for entry in self._document.services if entry.id == service), None)

    def _outputs(self, service: str) -> Values:
        service_spec = self._find_service(service)
        return {} if service_spec is None else plausible_params(service_spec.outputs, self._rng)


def _merge(old: Any, new: Any) -> Any:
    """Merge objects member by member; replace all other values."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merge(old.get(name), value) for name, value in new.items()}
    return new
