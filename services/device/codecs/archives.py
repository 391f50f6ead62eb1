"""ZIPs of device templates, as people send them. No I/O.

Nothing is unpacked: a file is read when it is asked for, by its name, and within bounds.
"""

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import PurePosixPath

LARGEST = 1024 * 1024
"""Bytes of a file of a template."""
MOST_BYTES = 32 * 1024 * 1024
"""That are read of an archive in all, also of files that are read several times."""
MOST_FILES = 5_000
LONGEST_PATH = 255
ENDINGS = (".yaml", ".js")
_PACKED = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    ValueError,
)
_ENCRYPTED = 1
_EACH = 1024
"""Bytes that reading a file counts for besides its own."""


class ArchiveInvalid(ValueError):
    """What cannot be read; the text says why."""


class Archive(Mapping[str, bytes]):
    """The files of a ZIP that templates are made of, by their paths."""

    def __init__(self, content: bytes) -> None:
        """Raise `ArchiveInvalid` for what is no ZIP or goes beyond a bound."""
        try:
            self._zip = zipfile.ZipFile(BytesIO(content))
        except _UNREADABLE as error:
            raise ArchiveInvalid(f"is no ZIP: {error}") from error
        infos = self._zip.infolist()
        if len(infos) > MOST_FILES:
            raise ArchiveInvalid(f"has {len(infos)} files, {MOST_FILES} is the most")
        self._infos = {one.filename: one for one in infos if one.filename.endswith(ENDINGS)}
        self._left = MOST_BYTES
        for path in self._infos:
            if len(path) > LONGEST_PATH:
                raise ArchiveInvalid(f"{path[:50]}… is longer than {LONGEST_PATH} characters")

    def __getitem__(self, path: str) -> bytes:
        """The content of a file, at most as many bytes as its entry says."""
        info = self._infos[path]
        if info.file_size > LARGEST:
            raise ArchiveInvalid(f"{path} has more than {LARGEST} bytes")
        self._left -= info.file_size + _EACH
        if self._left < 0:
            raise ArchiveInvalid(f"{path} is not read: it is more than {MOST_BYTES} bytes in all")
        if info.flag_bits & _ENCRYPTED or info.compress_type not in _PACKED:
            raise ArchiveInvalid(f"{path} is encrypted or packed in another way than by deflate")
        try:
            with self._zip.open(info) as file:
                return file.read(info.file_size)  # without a size all would be unpacked, then cut
        except _UNREADABLE as error:
            raise ArchiveInvalid(f"{path} cannot be read: {error}") from error

    def __iter__(self) -> Iterator[str]:
        """Every path."""
        return iter(self._infos)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._infos)


class Below(Mapping[str, bytes]):
    """The files below a folder, by their paths from there."""

    def __init__(self, files: Mapping[str, bytes], folder: PurePosixPath) -> None:
        self._files = files
        self._folder = folder

    def __getitem__(self, path: str) -> bytes:
        """The content of a file."""
        return self._files[str(self._folder / path)]

    def __iter__(self) -> Iterator[str]:
        """Every path."""
        paths = map(PurePosixPath, self._files)
        return (
            str(one.relative_to(self._folder)) for one in paths if one.is_relative_to(self._folder)
        )

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)
