"""Chinese texts of the built-in integrations' entities in the console."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.common.tsl import TslDocument
from services.management.manifests import load_manifest

TEXTS = Path(__file__).parents[3] / "console/src/features/integrations/entities.zh.ts"
SAME = {"AppKey", "DevEUI", "JoinEUI", "RSSI", "SN", "SNR"}
"""Names that are the same in every language."""
INTEGRATIONS = (
    "direct", "simulator", "openapi-client", "chirpstack", "tts", "milesight", "webhook"
)  # fmt: skip


@pytest.mark.parametrize("integration", INTEGRATIONS)
def test_each_name_has_a_chinese_one(integration):
    """Each property, service and input of a built-in integration has a Chinese name."""
    names, _, _ = TEXTS.read_text().partition("export const members")
    known = set(re.findall(r'^  "?(.+?)"?: "', names, re.MULTILINE))
    assert set(_names(load_manifest(integration).document())) <= known | SAME


def _names(document: TslDocument) -> Iterator[str]:
    for member in document.properties:
        yield member.name
    for service in document.services:
        yield service.name
        yield from (member.name for member in service.inputs)
