"""JavaScript (the body of a function, which gives its value with `return`) and conditions in CEL.

Both run in worker processes of ours.
"""

import json
from collections.abc import Mapping
from typing import Any

from services.workflow.sandbox.limits import CodeFailed, Limits, plain
from services.workflow.sandbox.processes import Processes
from services.workflow.sandbox.worker import CONDITION, SCRIPT


class Scripts:
    """Runs them; all raise `CodeFailed`."""

    def __init__(self, processes: Processes, limits: Limits) -> None:
        self._processes = processes
        self._limits = limits

    async def javascript(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """The value of a piece of JavaScript."""
        given = [code, list(arguments), list(arguments.values())]
        content = await self._ask(SCRIPT, given, "arguments and code", seconds)
        try:
            return plain(json.loads(content), self._limits.output)
        except (ValueError, RecursionError) as error:
            raise CodeFailed("its result is no JSON") from error

    async def cel(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """The value of a condition that may take long."""
        given = [code, arguments]
        return json.loads(await self._ask(CONDITION, given, "values and text", seconds))

    async def _ask(self, kind: bytes, given: Any, what: str, seconds: float) -> bytes:
        request = json.dumps(given).encode()
        if len(request) > self._limits.given:
            raise CodeFailed(f"gets more than {self._limits.given} bytes of {what}")
        answer = await self._processes.ask(kind + request, seconds)
        if answer[:1] != b"R":
            raise CodeFailed(answer[1:].decode(errors="replace"))
        return answer[1:]
