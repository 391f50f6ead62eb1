"""The sandbox with processes of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio

from services.workflow.sandbox.runner import Sandbox


@pytest_asyncio.fixture(scope="session")
async def sandbox() -> AsyncIterator[Sandbox]:
    """Two processes for each language."""
    async with Sandbox(2) as sandbox:
        yield sandbox
