"""The two APIs that the document is made of, each a document of its own as well."""

from collections.abc import Iterator
from enum import Enum

from libs.common.envelope import OPEN_API_PREFIXES
from services.gateway.docs.names import Document, Key, references


class Api(Enum):
    """A part of the document; the value begins the tags of its operations."""

    DEVICE = "Device API"
    """For applications and devices."""
    MANAGEMENT = "Management API"
    """For consoles."""


DOCUMENTS = {"device.json": Api.DEVICE, "management.json": Api.MANAGEMENT}
"""The documents of single APIs, by file name."""


def api_of(path: str) -> Api:
    """The API that a path belongs to."""
    return Api.DEVICE if path.startswith(OPEN_API_PREFIXES) else Api.MANAGEMENT


def alone(document: Document, api: Api) -> Document:
    """The part of the merged document that is about one API."""
    paths = {path: item for path, item in document["paths"].items() if api_of(path) is api}
    reached = _reached(document, paths)
    components = {
        section: {
            name: entry
            for name, entry in entries.items()
            if section == "securitySchemes" or (section, name) in reached
        }
        for section, entries in document["components"].items()
    }
    tags = [tag for tag in document["tags"] if tag["name"].startswith(api.value)]
    info = document["info"] | {"title": f"{document['info']['title']} {api.value}"}
    return document | {"info": info, "tags": tags, "paths": paths, "components": components}


def _reached(document: Document, paths: Document) -> set[Key]:
    reached: set[Key] = set()
    found: Iterator[Key] = references(paths)
    while new := set(found) - reached:
        reached |= new
        found = (
            key
            for section, name in new
            for key in references(document["components"].get(section, {}).get(name))
        )
    return reached
