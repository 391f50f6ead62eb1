"""The files that people uploaded, asked of `management`."""

from libs.common.bus import RpcClient
from libs.common.contracts.limits import LARGEST_LIBRARY
from libs.common.contracts.names import READ_RESOURCE, ReadResource, ResourcePart
from libs.common.errors import TooLarge


class ResourcesOverRpc:
    """Reads resources, kept by `management`."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def read(self, tenant: str, url: str) -> tuple[str, bytes]:
        """The name and content of a file of the tenant.

        Raises `NotFound` when there is none, `TooLarge` when it is no library by its size.
        """
        content = bytearray()
        while True:
            asked = ReadResource(tenant, url, len(content))
            part = await self._rpc.call(READ_RESOURCE, asked, ResourcePart)
            if not part.content:
                return part.name, bytes(content)
            content += part.content
            if len(content) > LARGEST_LIBRARY:
                raise TooLarge(f"a library has at most {LARGEST_LIBRARY} bytes", field="url")
