"""What the simulated device is: its values, its settings, how it obeys."""

import copy
import random
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from libs.common.tsl import parse_document, plausible_properties

_REMEMBERED_COMMANDS = 1000
_HIGH_TEMPERATURE = 30.0

Values = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What the device says about a command."""

    reply: Values
    report: Values = field(default_factory=dict)
    """Properties that the command changed, to be reported at once."""


class SimulatedDevice:
    """A device of one TSL, without its connection."""

    def __init__(self, sn: str, tsl: Values, rng: random.Random) -> None:
        self.sn = sn
        self._document = parse_document(tsl)
        self._rng = rng
        self._measured: Values = {}
        self._settings: Values = {"led": False, "reporting_interval": {"time": 3}}
        self._writable = {
            item["id"]
            for item in tsl["properties"]
            if item["accessMode"] != "R" and "." not in item["id"]
        }
        self._services = {item["id"] for item in tsl["services"]}
        self._replies: OrderedDict[str, Values] = OrderedDict()
        self._was_hot = False

    def measure(self) -> Values:
        """New plausible values near the last ones, and the settings as they are."""
        self._measured = plausible_properties(self._document, self._rng, self._measured)
        self._measured |= copy.deepcopy(self._settings)
        return dict(self._measured)

    def event(self) -> Values | None:
        """The event to send after a measurement: once each time it becomes hot."""
        temperature = self._measured.get("temperature", 0.0)
        is_hot = temperature >= _HIGH_TEMPERATURE
        rises, self._was_hot = is_hot and not self._was_hot, is_hot
        if not rises:
            return None
        return {"eventId": "high_temperature", "outputs": {"temperature": temperature}}

    def handle(self, command: Values) -> Outcome:
        """Execute a command once; delivered again, it is only answered again.

        Raises `KeyError` for a message without a `commandId`.
        """
        command_id = str(command["commandId"])
        known = self._replies.get(command_id)
        if known is not None:
            return Outcome(known)
        changed, error = self._execute(command)
        reply: Values = {"commandId": command["commandId"]}
        reply |= {"status": "FAILED", "error": error} if error else {"status": "SUCCESS"}
        if not error and command.get("kind") == "CALL_SERVICE":
            reply["outputs"] = {}
        self._replies[command_id] = reply
        if len(self._replies) > _REMEMBERED_COMMANDS:
            self._replies.popitem(last=False)
        return Outcome(reply, changed)

    def _execute(self, command: Values) -> tuple[Values, str | None]:
        """Return the changed properties, or why nothing was done."""
        expires_at = command.get("expiresAt")
        if isinstance(expires_at, int) and expires_at < time.time() * 1000:
            return {}, "the command has expired"
        match command.get("kind"):
            case "SET_PROPERTIES":
                return self._change(command.get("properties") or {})
            case "SET_PROFILE":
                pairs = command.get("values") or []
                known = {pair["key"]: pair["value"] for pair in pairs}
                return self._change({k: v for k, v in known.items() if k in self._writable})
            case "CALL_SERVICE":
                return self._call(command.get("serviceId"))
            case other:
                return {}, f"unknown kind {other}"

    def _change(self, wanted: Values) -> tuple[Values, str | None]:
        strangers = sorted(set(wanted) - self._writable)
        if strangers:
            return {}, f"not writable: {', '.join(strangers)}"
        for name, value in wanted.items():
            self._settings[name] = _merge(self._settings.get(name), value)
        return {name: copy.deepcopy(self._settings[name]) for name in wanted}, None

    def _call(self, service: Any) -> tuple[Values, str | None]:
        if service not in self._services:
            return {}, f"no service {service}"
        if service == "identify":
            self._settings["led"] = True
            return {"led": True}, None
        return {}, None


def _merge(old: Any, new: Any) -> Any:
    """Structs are merged member by member, everything else is replaced."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old | {name: _merge(old.get(name), value) for name, value in new.items()}
    return new
