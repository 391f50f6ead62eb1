"""Runs in a pod of its own: takes connections and passes them to Services, byte by byte.

Arguments: `port:host:port`, where it listens and where it passes on to. Ports are forwarded to this
pod, which stays, because `kubectl port-forward` binds itself to one pod; connections beyond it are
spread and broken as Services do it. A refused or reset connection would end `kubectl port-forward`:
when one side ends, the relay ends the other side in order, and reads it to its end.
"""

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


async def _pass_on(reader: Reader, writer: Writer) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    await _end(reader, writer)


async def _end(reader: Reader, writer: Writer) -> None:
    with contextlib.suppress(OSError):
        writer.write_eof()
    with contextlib.suppress(OSError):
        while await reader.read(65_536):
            pass


def _to(host: str, port: int) -> Callable[[Reader, Writer], Awaitable[None]]:
    async def meet(reader: Reader, writer: Writer) -> None:
        try:
            answers, asks = await asyncio.open_connection(host, port)
        except OSError:
            await _end(reader, writer)
        else:
            await asyncio.gather(_pass_on(reader, asks), _pass_on(answers, writer))
            asks.close()
        writer.close()

    return meet


async def main() -> None:
    """Serve until killed."""
    for words in sys.argv[1:]:
        port, host, target = words.split(":")
        await asyncio.start_server(_to(host, int(target)), "0.0.0.0", int(port))
    Path("/tmp/listening").touch()  # noqa: ASYNC240 - once, before it is used
    await asyncio.Event().wait()


asyncio.run(main())
