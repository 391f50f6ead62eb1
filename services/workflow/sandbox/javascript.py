"""JavaScript: the body of a function, which gives its value with `return`."""

import json
from collections.abc import Mapping
from typing import Any

from services.workflow.sandbox.limits import CodeFailed, Limits, plain
from services.workflow.sandbox.processes import Processes
from services.workflow.sandbox.worker import SCRIPT


class JavaScript:
    """Runs JavaScript in worker processes of ours."""

    def __init__(self, processes: Processes, limits: Limits) -> None:
        self._processes = processes
        self._limits = limits

    async def run(self, code: str, arguments: Mapping[str, Any], seconds: float) -> Any:
        """The value of `code`; raise `CodeFailed`."""
        request = json.dumps([code, list(arguments), list(arguments.values())]).encode()
        if len(request) > self._limits.given:
            raise CodeFailed(f"gets more than {self._limits.given} bytes of arguments and code")
        answer = await self._processes.ask(SCRIPT + request, seconds)
        kind, content = answer[:1], answer[1:]
        if kind != b"R":
            raise CodeFailed(content.decode(errors="replace"))
        try:
            return plain(json.loads(content), self._limits.output)
        except (ValueError, RecursionError) as error:
            raise CodeFailed("its result is no JSON") from error
