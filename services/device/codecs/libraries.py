"""Libraries of device templates: what an archive has of models. No I/O.

A library as beaver-iot-blueprint has it names its vendors in `manifest.yaml`, and those their
models; of any other archive each folder with a `device-template.yaml` is a model, of the vendor
that the folder above it is called.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from libs.common.tsl import Fault
from services.device.codecs.archives import LONGEST_PATH, ArchiveInvalid, Below
from services.device.codecs.templates import Template, TemplateInvalid, read_template, read_yaml
from services.device.things.schemas import Name

MANIFEST, TEMPLATE = "manifest.yaml", "device-template.yaml"
MOST_MODELS = 1000
MOST_VENDORS = 100
Short = Annotated[str, msgspec.Meta(max_length=64)]
Path = Annotated[str, msgspec.Meta(max_length=LONGEST_PATH)]
_TOP = PurePosixPath()
T = TypeVar("T")


class LibraryInvalid(ValueError):
    """A library that cannot be read; the text says why."""


class NoTemplates(LibraryInvalid):
    """An archive without any."""


class TemplateRef(msgspec.Struct, frozen=True):
    """Where the template of a model is."""

    model: str
    """Of the product that is made of it."""
    name: str
    vendor: str
    folder: str
    """From which the template names its files."""
    path: str
    """From there."""

    def read(self, files: Mapping[str, bytes]) -> Template:
        """The template; raise `TemplateInvalid` with every fault."""
        try:
            return read_template(Below(files, PurePosixPath(self.folder)), self.path)
        except ArchiveInvalid as error:
            raise TemplateInvalid([Fault(self.path, str(error))]) from error


class Library(NamedTuple):
    """The models of an archive, each once, and the version that its manifest says."""

    version: str
    models: list[TemplateRef]


class _Manifest(msgspec.Struct):
    device_vendor_index: Path
    version: Short = ""


class _Vendor(msgspec.Struct):
    id: Short
    work_dir: Path
    model_index: Path
    name: Name | None = None


class _Vendors(msgspec.Struct):
    vendors: Annotated[list[_Vendor], msgspec.Meta(max_length=MOST_VENDORS)]


class _Model(msgspec.Struct):
    id: Short
    template: Path
    name: Name | None = None


class _Models(msgspec.Struct):
    models: list[_Model]


def read_library(files: Mapping[str, bytes], name: str) -> Library:
    """What there is to be had; `name` is that of a template that lies in no folder.

    Raises `LibraryInvalid` for indexes that cannot be read, `NoTemplates`.
    """
    manifests = sorted(_named(files, MANIFEST), key=lambda one: len(one.parts))
    if manifests and manifests[0].parent.parent == _TOP:  # downloads have a folder around all
        version, found = _indexed(files, manifests[0])
    else:
        version, found = "", loose(files, name)
    models = {one.model: one for one in reversed(found)}
    if not models:
        raise NoTemplates(f"has no {TEMPLATE}")
    if len(models) > MOST_MODELS:
        raise LibraryInvalid(f"has {len(models)} models, {MOST_MODELS} is the most")
    return Library(version, [models[one] for one in sorted(models)])


def loose(files: Mapping[str, bytes], name: str) -> list[TemplateRef]:
    """The templates of an archive that has no manifest."""
    found = []
    for path in sorted(_named(files, TEMPLATE)):
        above = path.parent.parent
        model = path.parent.name or name
        inside = str(path.relative_to(above))
        found.append(TemplateRef(model.upper(), model.upper(), above.name, str(above), inside))
    return found


def faults_of(files: Mapping[str, bytes], model: TemplateRef) -> list[Fault]:
    """Everything that keeps a template from becoming a product."""
    try:
        model.read(files)
    except TemplateInvalid as error:
        return error.faults
    return []


def _indexed(files: Mapping[str, bytes], path: PurePosixPath) -> tuple[str, list[TemplateRef]]:
    manifest = _read(files, path, _Manifest)
    vendors = _read(files, path.parent / manifest.device_vendor_index, _Vendors).vendors
    found = []
    for vendor in vendors:
        folder = path.parent / vendor.work_dir
        for one in _read(files, folder / vendor.model_index, _Models).models:
            names = one.name or one.id, vendor.name or vendor.id
            found.append(TemplateRef(one.id.upper(), *names, str(folder), one.template))
    return manifest.version, found


def _read(files: Mapping[str, bytes], path: PurePosixPath, wanted: type[T]) -> T:
    content = files.get(str(path))
    if content is None:
        raise LibraryInvalid(f"{path} is not there")
    try:
        return read_yaml(content, wanted)
    except ValueError as error:
        raise LibraryInvalid(f"{path}: {error}") from error


def _named(files: Mapping[str, bytes], name: str) -> list[PurePosixPath]:
    return [path for path in map(PurePosixPath, files) if path.name == name]
