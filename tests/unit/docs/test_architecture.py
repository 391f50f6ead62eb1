"""File names on the page about the architecture."""

import re
from pathlib import Path

from tests.unit.docs.test_links import DOCS, ROOT

PAGE = DOCS / "explanation/architecture.md"


def test_the_files_that_the_page_names_exist():
    """Each `….py` and `….lua` in code marks ends the path of an existing file."""
    sources = [
        f"/{path.relative_to(ROOT)}"
        for folder in ("libs", "services", "deploy")
        for path in Path(ROOT / folder).rglob("*.*")
    ]
    named = re.findall(r"`([\w/]+\.(?:py|lua))`", PAGE.read_text())
    assert not [name for name in named if not any(path.endswith(f"/{name}") for path in sources)]
