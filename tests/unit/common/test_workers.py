"""What a worker process answers is bounded before it is decoded."""

import asyncio
from asyncio.subprocess import PIPE

import pytest

from libs.common.sandbox import workers
from libs.common.sandbox.workers import read_output, send_request, wait_until_killed

ANSWER = "import sys; sys.stdin.buffer.read({read}); sys.stdout.buffer.write({answer})"


async def process(answer: str, read: int = -1) -> asyncio.subprocess.Process:
    text = ANSWER.format(read=read, answer=answer)
    return await asyncio.create_subprocess_exec("python3", "-c", text, stdin=PIPE, stdout=PIPE)


async def test_all_that_a_process_answers_is_read():
    """Until it ends."""
    child = await process("b'x' * 300_000")
    assert await read_output(child, b"request", 300_000) == b"x" * 300_000
    assert child.returncode == 0


async def test_an_answer_above_the_limit_is_not_read():
    """An announced length above the limit is rejected before any byte is read."""
    child = await process("b'x' * 900_000")
    with pytest.raises(OSError, match="exceeds"):
        await read_output(child, b"request", 100_000)
    child.kill()
    await wait_until_killed(child)
    size = workers.MAX_ANSWER_BYTES + 1
    told = await process(f"({size}).to_bytes(4, 'big')", read=4)
    with pytest.raises(OSError, match=str(size)):
        await send_request(told, b"")
    await told.wait()
