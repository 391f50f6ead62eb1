"""Runs in a pod of its own: takes connections and passes them to Services, byte by byte.

Arguments: `port:host:port`, where it listens and where it passes on to. Ports are forwarded to this
pod, which stays, because `kubectl port-forward` binds itself to one pod; connections beyond it are
spread and broken as Services do it.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


async def _pass_on(reader: Reader, writer: Writer) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the other direction ends as well: both share the two sockets
    finally:
        writer.close()


def _to(host: str, port: int) -> Callable[[Reader, Writer], Awaitable[None]]:
    async def meet(reader: Reader, writer: Writer) -> None:
        try:
            answers, asks = await asyncio.open_connection(host, port)
        except OSError:
            writer.close()
        else:
            await asyncio.gather(_pass_on(reader, asks), _pass_on(answers, writer))

    return meet


async def main() -> None:
    """Serve until killed."""
    for words in sys.argv[1:]:
        port, host, target = words.split(":")
        await asyncio.start_server(_to(host, int(target)), "0.0.0.0", int(port))
    await asyncio.Event().wait()


asyncio.run(main())
