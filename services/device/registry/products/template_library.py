"""Archives of device templates, and the libraries in them. No I/O.

Archives are not unpacked: a file is read by its path, with limits. In the format of
beaver-iot-blueprint, `manifest.yaml` names an index of vendors, which names an index of models for
each vendor. In other archives each folder with a `device-template.yaml` is a model, and its parent
folder is the vendor.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import PurePosixPath
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from libs.common.tsl import Fault
from services.device.registry.products.template_parser import (
    Template,
    TemplateInvalid,
    parse_yaml,
    read_template,
)
from services.device.things.schemas import Name

MAX_FILE_BYTES = 1024 * 1024
"""Maximum bytes of a file of a template."""
MAX_READ_BYTES = 32 * 1024 * 1024
"""Maximum bytes that are read of an archive in total; repeated reads count again."""
MAX_ARCHIVE_FILES = 5_000
MAX_PATH_CHARACTERS = 255
TEMPLATE_FILE_ENDINGS = (".yaml", ".js")
_SUPPORTED_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
)
_ENCRYPTED_FLAG = 1
_READ_COST_BYTES = 1024
"""Bytes that each read adds to the size of the file in the total."""


class ArchiveInvalid(ValueError):
    """The archive or one file in it is unreadable; the message is the reason."""


class Archive(Mapping[str, bytes]):
    """The template files of a ZIP by their paths."""

    def __init__(self, content: bytes) -> None:
        """Raise `ArchiveInvalid` if the content is no ZIP or exceeds a limit."""
        try:
            self._zip = zipfile.ZipFile(BytesIO(content))
        except _READ_ERRORS as error:
            raise ArchiveInvalid(f"is no ZIP: {error}") from error
        infos = self._zip.infolist()
        if len(infos) > MAX_ARCHIVE_FILES:
            raise ArchiveInvalid(
                f"must have at most {MAX_ARCHIVE_FILES} files. It has {len(infos)}"
            )
        self._infos = {
            info.filename: info for info in infos if info.filename.endswith(TEMPLATE_FILE_ENDINGS)
        }
        self._left = MAX_READ_BYTES
        for path in self._infos:
            if len(path) > MAX_PATH_CHARACTERS:
                raise ArchiveInvalid(
                    f"{path[:50]}… is longer than {MAX_PATH_CHARACTERS} characters"
                )

    def __getitem__(self, path: str) -> bytes:
        """Return the content of a file, at most as many bytes as its entry declares."""
        info = self._infos[path]
        if info.file_size > MAX_FILE_BYTES:
            raise ArchiveInvalid(f"{path} has more than {MAX_FILE_BYTES} bytes")
        self._left -= info.file_size + _READ_COST_BYTES
        if self._left < 0:
            raise ArchiveInvalid(
                f"{path} is not read: the files exceed {MAX_READ_BYTES} bytes in total"
            )
        if info.flag_bits & _ENCRYPTED_FLAG or info.compress_type not in _SUPPORTED_COMPRESSIONS:
            raise ArchiveInvalid(f"{path} must not be encrypted, and must be compressed by deflate")
        try:
            with self._zip.open(info) as file:
                return file.read(info.file_size)  # without a size all would be unpacked, then cut
        except _READ_ERRORS as error:
            raise ArchiveInvalid(f"{path} cannot be read: {error}") from error

    def __iter__(self) -> Iterator[str]:
        """Yield the path of each file."""
        return iter(self._infos)

    def __len__(self) -> int:
        """Return the number of files."""
        return len(self._infos)


class PrefixView(Mapping[str, bytes]):
    """The files below a folder, by their paths relative to it."""

    def __init__(self, files: Mapping[str, bytes], folder: PurePosixPath) -> None:
        self._files = files
        self._folder = folder

    def __getitem__(self, path: str) -> bytes:
        """Return the content of a file."""
        return self._files[str(self._folder / path)]

    def __iter__(self) -> Iterator[str]:
        """Yield the path of each file, relative to the folder."""
        paths = map(PurePosixPath, self._files)
        return (
            str(path.relative_to(self._folder))
            for path in paths
            if path.is_relative_to(self._folder)
        )

    def __len__(self) -> int:
        """Return the number of files."""
        return sum(1 for _ in self)


MANIFEST, TEMPLATE = "manifest.yaml", "device-template.yaml"
MAX_LIBRARY_MODELS = 1000
MAX_VENDORS = 100
ShortText = Annotated[str, msgspec.Meta(max_length=64)]
ArchivePath = Annotated[str, msgspec.Meta(max_length=MAX_PATH_CHARACTERS)]
_TOP_FOLDER = PurePosixPath()
T = TypeVar("T")


class LibraryInvalid(ValueError):
    """The library cannot be read; the message is the reason."""


class NoTemplates(LibraryInvalid):
    """The archive contains no templates."""


class TemplateRef(msgspec.Struct, frozen=True):
    """The position of a model's template in an archive."""

    model: str
    """The model of the product that is created from it."""
    name: str
    vendor: str
    folder: str
    """The folder to which the paths in the template are relative."""
    path: str
    """Path of the template, relative to `folder`."""

    def read(self, files: Mapping[str, bytes]) -> Template:
        """Return the template; raise `TemplateInvalid` with every fault."""
        try:
            return read_template(PrefixView(files, PurePosixPath(self.folder)), self.path)
        except ArchiveInvalid as error:
            raise TemplateInvalid([Fault(self.path, str(error))]) from error


class Library(NamedTuple):
    """The models of an archive, each once, and the version in its manifest."""

    version: str
    models: list[TemplateRef]


class _Manifest(msgspec.Struct):
    device_vendor_index: ArchivePath
    version: ShortText = ""


class _Vendor(msgspec.Struct):
    id: ShortText
    work_dir: ArchivePath
    model_index: ArchivePath
    name: Name | None = None


class _VendorIndex(msgspec.Struct):
    vendors: Annotated[list[_Vendor], msgspec.Meta(max_length=MAX_VENDORS)]


class _Model(msgspec.Struct):
    id: ShortText
    template: ArchivePath
    name: Name | None = None


class _ModelIndex(msgspec.Struct):
    models: list[_Model]


def read_library(files: Mapping[str, bytes], name: str) -> Library:
    """Return the models of an archive; `name` is the model of a template outside any folder.

    Raises `NoTemplates` for an archive without models, and `LibraryInvalid` for too many models or
    an unreadable index.
    """
    manifests = sorted(_find_paths_by_file_name(files, MANIFEST), key=lambda path: len(path.parts))
    if (
        manifests and manifests[0].parent.parent == _TOP_FOLDER
    ):  # a downloaded archive has one folder with all files
        version, templates = _read_manifest(files, manifests[0])
    else:
        version, templates = "", find_templates_by_folder(files, name)
    models = {template.model: template for template in reversed(templates)}
    if not models:
        raise NoTemplates(f"has no {TEMPLATE}")
    if len(models) > MAX_LIBRARY_MODELS:
        raise LibraryInvalid(f"must have at most {MAX_LIBRARY_MODELS} models. It has {len(models)}")
    return Library(version, [models[model] for model in sorted(models)])


def find_templates_by_folder(files: Mapping[str, bytes], name: str) -> list[TemplateRef]:
    """Return the templates of an archive without a manifest."""
    templates = []
    for path in sorted(_find_paths_by_file_name(files, TEMPLATE)):
        above = path.parent.parent
        model = path.parent.name or name
        inside = str(path.relative_to(above))
        templates.append(TemplateRef(model.upper(), model.upper(), above.name, str(above), inside))
    return templates


def find_template_faults(files: Mapping[str, bytes], model: TemplateRef) -> list[Fault]:
    """Return every fault that prevents a product from being created."""
    try:
        model.read(files)
    except TemplateInvalid as error:
        return error.faults
    return []


def _read_manifest(
    files: Mapping[str, bytes], path: PurePosixPath
) -> tuple[str, list[TemplateRef]]:
    manifest = _read_index(files, path, _Manifest)
    vendors = _read_index(files, path.parent / manifest.device_vendor_index, _VendorIndex).vendors
    templates = []
    for vendor in vendors:
        folder = path.parent / vendor.work_dir
        for model in _read_index(files, folder / vendor.model_index, _ModelIndex).models:
            names = model.name or model.id, vendor.name or vendor.id
            templates.append(TemplateRef(model.id.upper(), *names, str(folder), model.template))
    return manifest.version, templates


def _read_index(files: Mapping[str, bytes], path: PurePosixPath, kind: type[T]) -> T:
    content = files.get(str(path))
    if content is None:
        raise LibraryInvalid(f"{path} does not exist")
    try:
        return parse_yaml(content, kind)
    except ValueError as error:
        raise LibraryInvalid(f"{path}: {error}") from error


def _find_paths_by_file_name(files: Mapping[str, bytes], name: str) -> list[PurePosixPath]:
    return [path for path in map(PurePosixPath, files) if path.name == name]
