"""Libraries of device templates, and the archives that they come in."""

import struct
import tracemalloc
import zipfile
from io import BytesIO

import pytest

from services.device.registry.products import template_library
from services.device.registry.products.template_library import (
    Archive,
    ArchiveInvalid,
    LibraryInvalid,
    NoTemplates,
    find_template_faults,
    read_library,
)
from services.device.registry.products.template_parser import MAX_YAML_LEVELS
from tests.templates import HEAD, SHARED, SMALL, library, packed, small

MANIFEST = {"manifest.yaml": "device_vendor_index: vendors.yaml"}

VENDORS = "vendors: [" + "{id: a, work_dir: a, model_index: a}," * 101 + "]"


def models(content: bytes) -> list[str]:
    return [model.model for model in read_library(Archive(content), "alone").models]


def faults(content: bytes) -> dict[str, list[str]]:
    """What is wrong, by model."""
    archive = Archive(content)
    found = {
        one.model: find_template_faults(archive, one) for one in read_library(archive, "x").models
    }
    return {model: [f"{one.path}: {one.reason}" for one in wrong] for model, wrong in found.items()}


def test_a_library_contains_the_models_of_its_indexes() -> None:
    """Vendors and models are found by name, also below a folder that downloads add."""
    content = library(b1=small("b1"), a1=small("a1"), gone={})
    found = read_library(Archive(content), "x")
    assert found.version == "1.2"
    assert [(model.model, model.name, model.vendor) for model in found.models] == [
        ("A1", "The a1", "Acme"),
        ("B1", "The b1", "Acme"),
        ("GONE", "The gone", "Acme"),
    ]
    missing = "gone/device-template.yaml: does not exist"
    assert faults(content) == {"A1": [], "B1": [], "GONE": [missing]}


@pytest.mark.parametrize(
    ("root", "vendor", "model"), [("", "", "TH1"), ("v/", "v", "TH1"), ("a/v/", "v", "TH1")]
)
def test_templates_need_no_index(root: str, vendor: str, model: str) -> None:
    """Without a manifest, each template of an archive is a model, at any depth."""
    content = packed({root + path: text for path, text in (small("th1") | SHARED).items()})
    (found,) = read_library(Archive(content), "x").models
    assert (found.model, found.vendor) == (model, vendor)
    assert found.read(Archive(content)).codec.scripts == SHARED


def test_a_template_in_no_folder_is_called_like_the_file() -> None:
    """The model of `th9.zip` is TH9."""
    content = packed({HEAD[1:]: SMALL % ".", "codec.yaml": "", **SHARED})
    assert models(content) == ["ALONE"]


def test_the_first_of_a_name_counts() -> None:
    """Two vendors may have a model of one name."""
    files = {f"{vendor}/{path}": text for vendor in "ba" for path, text in small("th1").items()}
    (found,) = read_library(Archive(packed(files)), "x").models
    assert found.vendor == "a"


def test_an_invalid_template_does_not_affect_others() -> None:
    """No name leads out of the folder of a vendor."""
    outside = {"up1/device-template.yaml": SMALL % "../../../up1", "up1/codec.yaml": ""}
    deep = {"deep1/device-template.yaml": "a: " + "[" * 100_000}
    bomb = {"bomb1/device-template.yaml": "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]"}
    found = faults(library(good=small("good"), up1=outside, deep1=deep, bomb1=bomb))
    assert found == {
        "GOOD": [],
        "UP1": ["../../../up1/codec.yaml: does not exist"],
        "DEEP1": [f"deep1/device-template.yaml: has more than {MAX_YAML_LEVELS} levels"],
        "BOMB1": ["bomb1/device-template.yaml: must not have an alias"],
    }


@pytest.mark.parametrize(
    ("files", "error", "text"),
    [
        ({"a.yaml": ""}, NoTemplates, "has no device-template.yaml"),
        (MANIFEST, LibraryInvalid, "vendors.yaml does not exist"),
        (MANIFEST | {"vendors.yaml": "vendors: 1"}, LibraryInvalid, r"vendors.yaml: .*array"),
        (MANIFEST | {"vendors.yaml": "a: b: c"}, LibraryInvalid, "is no YAML"),
        (MANIFEST | {"vendors.yaml": VENDORS}, LibraryInvalid, "length <= 100"),
        ({"manifest.yaml": "x: 1"}, LibraryInvalid, "device_vendor_index"),
    ],
)
def test_a_library_without_its_indexes_is_refused(files, error, text) -> None:
    """With the file that is missing or wrong."""
    with pytest.raises(error, match=text):
        models(packed(files))


def test_archives_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """They limit the files, the bytes of a file, and all unpacked bytes."""
    two = packed({"a.js": "a" * 10, "b.js": "b" * 10, "c.png": "c" * 100})
    for name, most, text in (
        ("MAX_ARCHIVE_FILES", 2, "It has 3"),
        ("MAX_FILE_BYTES", 9, "a.js has more than"),
        ("MAX_READ_BYTES", 2047, "b.js is not read"),
        ("MAX_PATH_CHARACTERS", 3, "longer than"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(template_library, name, most)
            with pytest.raises(ArchiveInvalid, match=text):
                dict(Archive(two))
    assert set(Archive(two)) == {"a.js", "b.js"}
    monkeypatch.setattr(template_library, "MAX_LIBRARY_MODELS", 1)
    with pytest.raises(LibraryInvalid, match="It has 2"):
        models(library(a=small("a"), b=small("b")))


def test_an_entry_is_unpacked_up_to_its_declared_size() -> None:
    """A larger file is unreadable, and is not unpacked further."""
    lying = bytearray(packed({"a.js": bytes(64_000_000)}))
    said = (64_000_000).to_bytes(4, "little")
    while (at := lying.find(said)) >= 0:
        lying[at : at + 4] = (10).to_bytes(4, "little")
    archive = Archive(bytes(lying))
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveInvalid, match="cannot be read"):
            archive["a.js"]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("at", "value"),
    [(8, b"\x20\0"), (8, b"\x40\0"), (42, b"\xff\xff\xff\0"), (42, None), (10, b"\x63\0")],
    ids=["patched", "strongly encrypted", "beyond the end", "far beyond the end", "odd method"],
)
def test_an_odd_entry_of_a_directory_cannot_be_read(at: int, value: bytes | None) -> None:
    """Whatever it says of itself: that is a fault of the archive, told as one."""
    made = bytearray(packed({"a.js": "a"}))
    entry, end = made.rindex(b"PK\1\2"), made.rindex(b"PK\5\6")
    if value is None:  # an offset of 64 bits, which stands in a field at the end of the entry
        wide = struct.pack("<HHQ", 1, 8, 2**64 - 1)
        made[end:end] = wide
        struct.pack_into("<H", made, entry + 30, len(wide))
        struct.pack_into("<I", made, end + len(wide) + 12, end + len(wide) - entry)
        value = b"\xff" * 4
    made[entry + at : entry + at + len(value)] = value
    with pytest.raises(ArchiveInvalid, match=r"a\.js"):
        Archive(bytes(made))["a.js"]


def test_the_error_of_an_unreadable_archive_names_the_cause() -> None:
    """It is no ZIP, incomplete, encrypted, or compressed by an unknown method."""
    whole = packed(small("a") | SHARED)
    for odd in (b"", b"PK\x03\x04", whole[:-30], whole[:40]):
        with pytest.raises(ArchiveInvalid, match="is no ZIP"):
            Archive(odd)
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.js", "a")
    with pytest.raises(ArchiveInvalid, match="compressed by deflate"):
        Archive(made.getvalue())["a.js"]
    torn = whole.replace(b"common/a.js", b"common/b.js", 1)
    (fault,) = faults(torn)["A"]
    assert fault.startswith("a/device-template.yaml: common/a.js cannot be read")
