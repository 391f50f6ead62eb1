"""Code nodes: what one adds to a run of a flow, its sandbox included."""

import asyncio
import time
from typing import Any

import msgspec

from bench.table import Row, middle
from services.workflow.nodes.base import NodeContext
from services.workflow.nodes.code import CodeNode, CodeParameters
from services.workflow.sandbox.runner import Sandbox

RUNS = 500
RATE = 100
"""Runs in a second: a code node waits for no other one."""
BAR = 1.0
"""ms at the median."""
CODE = {
    "js": "return {fahrenheit: degrees * 1.8 + 32, hot: degrees > 30}",
    "python": "return {'fahrenheit': degrees * 1.8 + 32, 'hot': degrees > 30}",
}


def _parameters(language: str) -> CodeParameters:
    return msgspec.convert(
        {
            "expression": {"language": language, "expression": CODE[language]},
            "inputArguments": {"degrees": "#{properties.start['degrees']}"},
            "payload": [
                {"name": "fahrenheit", "type": "DOUBLE"},
                {"name": "hot", "type": "BOOLEAN"},
            ],
        },
        CodeParameters,
    )


def _context(degrees: float) -> NodeContext:
    return NodeContext(
        tenant="default",
        flow_id=1,
        run_id=1,
        node_id="code",
        node_name="Code",
        hops=0,
        dry_run=False,
        deadline=asyncio.get_running_loop().time() + 60,
        properties={"start": {"degrees": degrees}},
    )


async def _code(language: str) -> Row:
    """What one node takes, from its parameters to its checked output."""
    parameters = _parameters(language)
    taken: list[float] = []
    async with Sandbox(2) as sandbox:
        node: CodeNode = CodeNode(sandbox)
        for number in range(RUNS):
            begun = time.perf_counter()
            output: Any = await node.run(_context(number), parameters, None)
            taken.append((time.perf_counter() - begun) * 1000)
            assert output["hot"] is (number > 30)
            await asyncio.sleep(max(0.0, 1 / RATE - taken[-1] / 1000))
    at = sorted(taken)
    p50, p99 = middle(taken), at[int(len(at) * 0.99)]
    return Row(
        f"code node ({language}), {RATE}/s",
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        bar=f"p50 ≤ {BAR:g} ms",
        ok=p50 <= BAR,
    )


async def run() -> list[Row]:
    """Measure both languages."""
    return [await _code(language) for language in CODE]
