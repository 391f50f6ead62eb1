"""Thirty public device templates (https://github.com/Milesight-IoT/beaver-iot-blueprint, MIT)."""

import zipfile
from functools import cache
from pathlib import Path

from services.device.codecs.templates import Template, read_template

ARCHIVE = Path(__file__).parent / "e2e" / "templates.zip"
VENDOR = "milesight-iot/"
HEAD = "/device-template.yaml"


@cache
def _files() -> dict[str, bytes]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = [one for one in archive.namelist() if one.startswith(VENDOR)]
        return {one.removeprefix(VENDOR): archive.read(one) for one in names}


def names() -> list[str]:
    """The models of all of them."""
    return sorted(one.removesuffix(HEAD) for one in _files() if one.endswith(HEAD))


def template(name: str) -> Template:
    """One of them."""
    return read_template(_files(), name + HEAD)
