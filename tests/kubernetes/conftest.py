"""Needs `kubectl`, `helm`, a Docker engine, and a cluster that `KUBECONFIG` names.

`THINGWAY_KUBERNETES_LOAD` is the command that gives the cluster images of the engine: it is called
with their names. `THINGWAY_KUBERNETES_IMAGE` is the image's name, for a registry; the command is
`docker push` then. `THINGWAY_KUBERNETES_VALUES` is a file of values for this cluster, if it needs
some: other images of the stores, a storage class.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.faults import TABLE, table
from tests.kubernetes.installed import run

ROOT = Path(__file__).parents[2]
TAGS = ("first", "second")
PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")


def _answers(*words: str) -> bool:
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="session")
def image() -> str:
    """Return the name of our image; the cluster has it with two tags."""
    for words in (("kubectl", "get", "--raw", "/readyz"), ("helm", "version"), ("docker", "info")):
        if not _answers(*words):
            pytest.skip(f"`{' '.join(words)}` fails: no cluster, or no engine to build for it")
    name = os.environ.get("THINGWAY_KUBERNETES_IMAGE", "thingway")
    # As docker-compose.yml does it: pip's index, if it is not the public one, from the environment.
    given = [f"--build-arg={one}" for one in PIP if one in os.environ]
    file = "deploy/docker/Dockerfile"
    images = [f"{name}:{tag}" for tag in TAGS]
    for number, one in enumerate(images, 1):  # a label makes them two images
        label = f"--label=thingway.test={number}"
        run("docker", "build", "-q", "-f", str(ROOT / file), label, "-t", one, *given, str(ROOT))
    if load := os.environ.get("THINGWAY_KUBERNETES_LOAD"):
        for one in images:
            run(*shlex.split(load), one)
    return name


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of faults."""
    if TABLE:
        terminalreporter.section("faults under load")
        terminalreporter.write_line(table(TABLE))
