"""The page of node types."""

import re
from pathlib import Path

import msgspec

from services.workflow.components import reference

ROOT = Path(__file__).parents[3]


def test_the_page_equals_the_structs():
    """`docs/reference/nodes.md` equals the page that the code generates."""
    assert (ROOT / "docs/reference/nodes.md").read_text() == reference.render_page(), (
        "python -m services.workflow.components.reference > docs/reference/nodes.md"
    )


def test_the_console_has_chinese_words_for_every_node_type():
    """Each node type and each of its parameters has Chinese texts."""
    text = (ROOT / "console/src/features/flows/nodes.zh.ts").read_text()
    blocks = dict(
        re.findall(r"^  (\w+): \{(.*?)(?=^  \w+: \{|^\};)", text, re.MULTILINE | re.DOTALL)
    )
    for node in reference.iterate_node_types():
        for field in msgspec.structs.fields(node.parameters):
            assert f"{field.encode_name}: [" in blocks[node.name], (node.name, field.encode_name)


def test_each_field_has_a_meaning():
    """No cell of the column "meaning" is empty or has bounds only."""
    bounds = re.compile(r"(at (least|most) )?\d+( to \d+)?( characters)?|").fullmatch
    rows = (row.split("|") for row in reference.render_page().splitlines() if row.startswith("| `"))
    assert [row for row in rows if bounds(row[-2].strip())] == []
