"""The merged OpenAPI document and its parts, fetched from the services and cached."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout
from yarl import URL

from libs.common.decoding import JSON_ERRORS
from libs.common.http.static import StaticDocument
from services.gateway.docs.document import ApiPart, OpenApiDocument, extract_api, merge_documents
from services.gateway.routes import Route

log = logging.getLogger(__name__)

CACHE_SECONDS = 60.0
"""Seconds for which a complete document is cached."""
INCOMPLETE_CACHE_SECONDS = 2.0
"""Seconds for which the document is cached while a service does not answer."""
FETCH_TIMEOUT = ClientTimeout(total=20.0, sock_connect=3.0)
"""A service renders its document at the first request, which may take seconds; a stopped service is
detected sooner."""


class DocumentCache:
    """Fetches the documents; for a stopped service, the last known document is used."""

    def __init__(
        self, session: ClientSession, services: Mapping[str, URL], routes: tuple[Route, ...]
    ) -> None:
        self._session = session
        self._services = services
        self._routes = routes
        self._seen: dict[str, OpenApiDocument] = {}
        self._merged: OpenApiDocument = {}
        self._written: dict[ApiPart | None, StaticDocument] = {}
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def get_document(self, api: ApiPart | None = None) -> StaticDocument:
        """Return the OpenAPI document of all public operations, or of one API."""
        async with self._lock:
            if time.monotonic() >= self._until:
                await self._refresh()
            if api not in self._written:
                document = self._merged if api is None else extract_api(self._merged, api)
                self._written[api] = StaticDocument(
                    msgspec.json.encode(document), "application/json"
                )
            return self._written[api]

    async def _refresh(self) -> None:
        complete = all(await asyncio.gather(*map(self._fetch, self._services)))
        cached_documents = {name: self._seen[name] for name in self._services if name in self._seen}
        merged = merge_documents(cached_documents, self._routes)
        if merged != self._merged:
            self._merged, self._written = merged, {}
        self._until = time.monotonic() + (CACHE_SECONDS if complete else INCOMPLETE_CACHE_SECONDS)

    async def _fetch(self, name: str) -> bool:
        url = self._services[name] / "schema" / "openapi.json"
        try:
            async with self._session.get(url, timeout=FETCH_TIMEOUT) as answer:
                answer.raise_for_status()
                document: Any = msgspec.json.decode(await answer.read())
        except (ClientError, TimeoutError, *JSON_ERRORS) as error:
            log.info("no documentation from %s: %r", name, error)
            return False
        if not isinstance(document, dict):
            return False
        self._seen[name] = document
        return True
