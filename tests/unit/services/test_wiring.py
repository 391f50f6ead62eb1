"""The services as they are wired, on clients that never connect."""

from collections.abc import Callable

import pytest
from litestar import Litestar

from libs.common.identity import generate_keys
from services.gateway.docs.catalogue import DocumentCache
from services.gateway.pages import ReadinessCache, create_pages_application
from tests.apps import SERVICES, silent


def _gateway(_: str) -> Litestar:
    async def never(_: Litestar) -> None:
        """The application is not started."""

    return create_pages_application(
        ReadinessCache({}), DocumentCache(None, {}, []), silent(), never
    )


@pytest.mark.parametrize("build", [*SERVICES.values(), _gateway], ids=[*SERVICES, "gateway"])
async def test_a_service_is_written_as_the_next_litestar_reads_it(
    build: Callable[[str], Litestar],
):
    """Building every route warns of nothing; pytest makes an error of what Litestar deprecates."""
    assert build(generate_keys()[1]).routes
