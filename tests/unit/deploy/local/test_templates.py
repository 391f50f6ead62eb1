"""How `thingway product import-template` reads public device templates."""

from pathlib import Path

import pytest

from deploy.local.cli import main
from deploy.local.products import TemplateFolder, load_template
from deploy.platform.errors import CommandError, InputRejected
from tests.templates import SHARED, SMALL, SMALL_CODEC, packed, small

TEMPLATE, CODECS = SMALL % "th1", SMALL_CODEC
FILES = small("th1") | SHARED


def folder(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "th1"


def zipped(root: Path, files: dict[str, str]) -> Path:
    path = root / "th1.zip"
    path.write_bytes(packed({f"vendor/{name}": text for name, text in files.items()}))
    return path


@pytest.mark.parametrize("made", [folder, zipped])
def test_a_template_is_read_with_shared_files(made, tmp_path: Path) -> None:
    """From its folder, or from a ZIP at any depth."""
    name, template = load_template(made(tmp_path, FILES))
    assert name.lower() == "th1"
    assert set(template.codec.scripts) == {"common/a.js"}


def test_files_outside_a_template_are_not_loaded(tmp_path: Path) -> None:
    """A path that leaves the parent folder counts as missing."""
    (tmp_path / "secret.js").write_text("function Decode() {}")
    files = FILES | {"th1/codec.yaml": CODECS.replace("common/a.js", "../secret.js")}
    with pytest.raises(InputRejected, match=r"\.\./secret\.js does not exist"):
        load_template(folder(tmp_path / "vendor", files))


def test_a_folder_lists_the_files_that_can_be_read(tmp_path: Path) -> None:
    """Neither folders nor links that leave it."""
    (tmp_path / "secret.js").write_text("")
    root = folder(tmp_path / "vendor", FILES).parent
    (root / "link.js").symlink_to(tmp_path / "secret.js")
    files = TemplateFolder(root)
    assert {path: content.decode() for path, content in files.items()} == FILES
    assert len(files) == len(FILES)


def test_every_fault_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line contains the file and the path of the fault."""
    files = FILES | {"th1/device-template.yaml": TEMPLATE.replace("double", "odd")}
    del files["common/a.js"]
    wanted = ["--url", "http://127.0.0.1:1", "--client-id", "a", "--client-secret", "b"]
    given = str(folder(tmp_path, files))
    assert main(["product", "import-template", given, *wanted]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "th1/device-template.yaml: properties[0].dataSpec.dataType" in first
    assert second == "thingway: th1/codec.yaml: common/a.js does not exist"


def test_an_unreadable_template_is_rejected(tmp_path: Path) -> None:
    """Not a ZIP, none or several templates, and files that are too large."""
    (tmp_path / "odd.zip").write_text("no zip")
    with pytest.raises(CommandError, match="cannot read"):
        load_template(tmp_path / "odd.zip")
    with pytest.raises(CommandError, match="contains 0"):
        load_template(zipped(tmp_path, {"a.yaml": ""}))
    with pytest.raises(CommandError, match="contains 2"):
        load_template(
            zipped(tmp_path, {"a/device-template.yaml": "", "b/device-template.yaml": ""})
        )
    large = FILES | {"common/a.js": "/" * (1024 * 1024 + 1)}
    for made in (folder, zipped):
        with pytest.raises(CommandError, match="more than"):
            load_template(made(tmp_path, large))
