"""Thirty public device templates (https://github.com/Milesight-IoT/beaver-iot-blueprint, MIT)."""

import zipfile
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from pathlib import Path

from services.device.registry.products.template_parser import Template, read_template

ARCHIVE = Path(__file__).parent / "e2e" / "templates.zip"
VENDOR = "milesight-iot/"
HEAD = "/device-template.yaml"
SMALL = """
initial_entities:
  - {identifier: temperature, name: Temperature, access_mod: R, value_type: double}
codec: {ref: %s/codec.yaml}
"""
STEP = "{entry: Decode, args: [{id: bytes, is_payload: true}], script: "
SMALL_CODEC = f"codecs: [{{id: default, decoder: {{chain: [{STEP}common/a.js}}]}}}}]"
SHARED = {"common/a.js": "function Decode(bytes) { return {temperature: bytes[0]} }"}
"""The script that small templates share."""


@cache
def _files() -> dict[str, bytes]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        names = [one for one in archive.namelist() if one.startswith(VENDOR)]
        return {name.removeprefix(VENDOR): archive.read(name) for name in names}


def names() -> list[str]:
    """The models of all of them."""
    return sorted(file.removesuffix(HEAD) for file in _files() if file.endswith(HEAD))


def template(name: str) -> Template:
    """One of them."""
    return read_template(_files(), name + HEAD)


def small(name: str) -> dict[str, str]:
    """The files of a template with one property, beside which `SHARED` is needed."""
    return {f"{name}{HEAD}": SMALL % name, f"{name}/codec.yaml": SMALL_CODEC}


def library(**models: dict[str, str]) -> bytes:
    """A library of the vendor Acme, whose models have these files, as its makers pack it."""
    index = "".join(
        f"  - {{id: {model}, name: The {model}, template: {model}{HEAD}}}\n" for model in models
    )
    files = SHARED | {path: text for model in models.values() for path, text in model.items()}
    vendor = "{id: acme, name: Acme, work_dir: devices/acme, model_index: models.yaml}"
    return packed(
        {
            "lib-main/manifest.yaml": "version: 1.2\ndevice_vendor_index: devices/vendors.yaml",
            "lib-main/devices/vendors.yaml": f"vendors: [{vendor}]",
            "lib-main/devices/acme/models.yaml": f"models:\n{index}",
            **{f"lib-main/devices/acme/{path}": text for path, text in files.items()},
        }
    )


def packed(files: Mapping[str, str | bytes]) -> bytes:
    """A ZIP."""
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()
