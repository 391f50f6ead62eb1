"""The page of node types."""

from pathlib import Path

from services.workflow.components import reference

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_structs_say():
    """`docs/nodes.md` is generated anew with every change of a parameter."""
    assert (ROOT / "docs/nodes.md").read_text() == reference.render(), (
        "python -m services.workflow.components.reference > docs/nodes.md"
    )
