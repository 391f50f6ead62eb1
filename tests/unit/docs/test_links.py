"""Links, paths and indexes of the documentation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
READMES = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy/helm/thingway/README.md"
PAGES = sorted([*READMES, *DOCS.glob("**/*.md")])


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the file and the anchor of each link of a page to the repository."""
    found = re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text())
    return [
        ((page.parent / target).resolve() if target else page, anchor)
        for target, anchor in found
        if not re.match(r"[a-z]+:", target)
    ]


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page."""
    text = re.sub(r"^```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    words = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path):
    """Each link names an existing file and, in a page, an existing heading."""
    broken = [
        f"{target}#{anchor}"
        for target, anchor in links(page)
        if not target.exists()
        or (anchor and target.suffix == ".md" and anchor not in anchors(target))
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_in_code_marks_exist(page: Path):
    """`libs/…`, `services/…`, `deploy/…` and `tests/…` in code marks are files or folders."""
    named = re.findall(
        r"`((?:libs|services|deploy|tests|bench|docs)/[\w./-]*\w)`", page.read_text()
    )
    assert not [path for path in named if not (ROOT / path).exists()]


def test_pages_of_the_site_link_only_to_its_files():
    """The site has no file outside `docs/`."""
    outside = [
        f"{page.relative_to(DOCS)}: {target}"
        for page in DOCS.glob("**/*.md")
        for target, _ in links(page)
        if not target.is_relative_to(DOCS)
    ]
    assert not outside


def test_the_index_leads_to_every_page():
    """`docs/index.md` links to each page and to the index of decisions."""
    linked = {target for target, _ in links(DOCS / "index.md")}
    pages = {page for page in PAGES if page.is_relative_to(DOCS)} - {DOCS / "index.md"}
    assert {page for page in pages if page.parent.name != "decisions"} <= linked
    assert DOCS / "decisions/index.md" in linked


def test_the_index_of_decisions_leads_to_every_decision():
    """Each file of `docs/decisions` has a row."""
    linked = {target for target, _ in links(DOCS / "decisions/index.md")}
    assert set(DOCS.glob("decisions/[0-9]*.md")) <= linked


def test_the_menu_of_the_site_has_every_page():
    """`zensical.toml` lists each page but the single decisions."""
    listed = set(re.findall(r'= "([\w/-]+\.md)"', (ROOT / "zensical.toml").read_text()))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")}
    assert listed == {page for page in pages if not re.match(r"decisions/\d", page)}
