"""What the documents link to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path):
    """Files that links name exist."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [
        target
        for target in targets
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_paths_that_a_page_names_exist(page: Path):
    """`libs/…`, `services/…`, `deploy/…` and `tests/…` in code marks are files or folders."""
    named = re.findall(
        r"`((?:libs|services|deploy|tests|bench|docs)/[\w./-]*\w)`", page.read_text()
    )
    assert not [path for path in named if not (ROOT / path).exists()]
