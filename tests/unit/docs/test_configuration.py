"""`docs/reference/configuration.md` lists every setting with its default, and no other."""

import ast
import re
from dataclasses import MISSING, Field, fields
from itertools import pairwise
from pathlib import Path

import pytest

from libs.common import settings
from services.auth.settings import AuthSettings
from services.device.settings import DeviceSettings
from services.gateway.settings import GatewaySettings, RelaySettings
from services.management.settings import ManagementSettings
from services.workflow.settings import WorkflowSettings

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/configuration.md"
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
KINDS: dict[str, type] = {
    "Every service": settings.ServiceSettings,
    "Services with a database: all but `gateway` and `gateway-bus`": settings.StoreSettings,
    "`auth`": AuthSettings,
    "`device` and `device-ingest`": DeviceSettings,
    "`gateway`": GatewaySettings,
    "`gateway-bus`": RelaySettings,
    "`management`": ManagementSettings,
    "`workflow`": WorkflowSettings,
}
ELSEWHERE = ["libs/**/*.py", "services/**/*.py", "deploy/**/*.py", "docker-compose.yml", "Makefile"]


def tables() -> str:
    """Return the tables of settings: each field with its default and its docstring."""
    parts = []
    for title, kind in KINDS.items():
        sentences = _sentences(kind)
        parts.append(f"### {title}\n\n| variable | default | meaning |\n|---|---|---|\n")
        for field in fields(kind):
            if field.name in sentences:
                variable = f"{settings.VARIABLE_PREFIX}{field.name.upper()}"
                parts.append(f"| `{variable}` | {_default(field)} | {sentences[field.name]} |\n")
        parts.append("\n")
    return "".join(parts)


def _default(field: "Field[object]") -> str:
    if field.default is MISSING:
        return "required"
    return f"`{field.default}`" if field.default != "" else "empty"


def _sentences(kind: type) -> dict[str, str]:
    """Return the docstring of each field that the class itself declares."""
    source = (ROOT / f"{kind.__module__.replace('.', '/')}.py").read_text()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    body = next(node for node in classes if node.name == kind.__name__).body
    found = {}
    for field, below in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            assert isinstance(below, ast.Expr), field.target.id
            assert isinstance(below.value, ast.Constant), field.target.id
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found


def test_the_tables_are_those_of_the_code():
    """The tables equal the settings; `python tests/unit/docs/test_configuration.py` writes them."""
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == tables()


@pytest.mark.parametrize("pattern", ELSEWHERE)
def test_every_variable_that_anything_reads_is_on_the_page(pattern: str):
    """The page names every variable of services, launcher, compose and jobs."""
    page = PAGE.read_text()
    used = {
        variable
        for file in ROOT.glob(pattern)
        for variable in re.findall(r"\bTHINGWAY_[A-Z_]*[A-Z]\b(?!_)", file.read_text())
    }
    missing = {variable for variable in used if f"`{variable}`" not in page}
    assert not missing


if __name__ == "__main__":
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + tables() + END + rest.partition(END)[2])
