"""Benchmark of code nodes: the time that one adds to a flow run."""

import asyncio
import time
from typing import Any

import msgspec

from bench.table import Row, median_value
from services.workflow.nodes.base import NodeContext
from services.workflow.nodes.code import CodeNode, CodeParameters
from services.workflow.sandbox.runner import Sandbox

RUNS = 500
RATE = 100
"""Runs per second, so that no code node waits for another."""
BAR = 1.0
"""Target of the median in ms."""
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
    """Measure a node from its parameters to its validated output."""
    parameters = _parameters(language)
    taken: list[float] = []
    async with Sandbox(2) as sandbox:
        node: CodeNode = CodeNode(sandbox)
        for number in range(RUNS):
            started = time.perf_counter()
            output: Any = await node.run(_context(number), parameters, None)
            taken.append((time.perf_counter() - started) * 1000)
            assert output["hot"] is (number > 30)
            await asyncio.sleep(max(0.0, 1 / RATE - taken[-1] / 1000))
    at = sorted(taken)
    p50, p99 = median_value(taken), at[int(len(at) * 0.99)]
    return Row(
        f"code node ({language}), {RATE}/s",
        f"p50 {p50:.2f} ms, p99 {p99:.2f} ms",
        bar=f"p50 ≤ {BAR:g} ms",
        ok=p50 <= BAR,
    )


async def run() -> list[Row]:
    """Measure both languages."""
    return [await _code(language) for language in CODE]
