"""The AsyncAPI document equals the code, and keeps all published subjects and fields."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from libs.common.contracts import asyncapi

ROOT = Path(__file__).parents[3]
PROMISED = Path(__file__).with_name("asyncapi_promised.txt")
"""One line for each subject, field, type and field that is always there.

`python tests/unit/docs/test_asyncapi.py` writes the file. Lines may be added freely. Removing one
breaks readers and raises the first number of `asyncapi.CONTRACT_VERSION`.
"""

Json = dict[str, Any]


def promises(document: Json) -> list[str]:
    """Return a line for each subject, field, type and required field of the document."""
    found: list[str] = []
    for channel in document["channels"].values():
        subject = channel["address"]
        found.append(subject)
        for body in channel["messages"]:
            schema = _resolved(document, {"$ref": f"#/components/schemas/{body}"})
            found += [f"{subject} {line}" for line in _fields(document, schema, "")]
    return sorted(found)


def _fields(document: Json, schema: Json, path: str) -> Iterator[str]:
    for name, given in schema.get("properties", {}).items():
        field = _resolved(document, given)
        at = f"{path}{name}"
        yield f"{at}: {_type(field)}"
        if name in schema.get("required", ()):
            yield f"{at}: always"
        yield from _fields(document, field, f"{at}.")
        if "items" in field:
            yield from _fields(document, _resolved(document, field["items"]), f"{at}[].")


def _type(field: Json) -> str:
    if "anyOf" in field:
        return "|".join(sorted(str(one.get("type")) for one in field["anyOf"]))
    return str(field.get("type", "string" if "enum" in field else "any"))


def _resolved(document: Json, schema: Json) -> Json:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Json = document["components"]["schemas"][name] if name else schema
    return found


def test_the_file_equals_the_structs():
    """`docs/reference/asyncapi.json` equals the document that the code generates."""
    assert (ROOT / "docs/reference/asyncapi.json").read_bytes() == asyncapi.render_document(), (
        "python -m libs.common.contracts.asyncapi > docs/reference/asyncapi.json"
    )


def test_no_published_subject_or_field_is_removed():
    """The document has every published subject, field and type."""
    gone = set(PROMISED.read_text().splitlines()) - set(promises(asyncapi.build_document()))
    assert not gone, sorted(gone)


def test_a_removed_field_and_subject_are_noticed():
    """The comparison reports a removed field and a removed subject."""
    document = json.loads(asyncapi.render_document())
    before = set(promises(document))
    del document["components"]["schemas"]["PropertiesReported"]["properties"]["ts"]
    del document["channels"]["event.device.online"]
    gone = before - set(promises(document))
    assert "event.{tenant}.device.{deviceId}.reported ts: integer" in gone
    assert "event.{tenant}.device.{deviceId}.online" in gone


def test_every_reference_of_the_document_resolves():
    """Each `$ref` points to an existing part of the document."""
    document = json.loads(asyncapi.render_document())

    def check(node: Any) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                if key == "$ref":
                    target: Any = document
                    for part in value.removeprefix("#/").split("/"):
                        target = target[part]
                else:
                    check(value)
        elif isinstance(node, list):
            for value in node:
                check(value)

    check(document)


if __name__ == "__main__":
    PROMISED.write_text("\n".join(promises(asyncapi.build_document())) + "\n")
