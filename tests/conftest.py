"""Fixtures for every test: real servers, and a database of its own for each test."""

import gc
import os
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pymongo import MongoClient

sys.path.insert(0, str(Path(__file__).parents[1]))  # so that tests import `tests.servers`

from tests import databases
from tests.processor_time import CostOfEachFile, Costs, count_in
from tests.servers import Servers, end_run, provide

RUN_DIRECTORY = pytest.StashKey[Path]()

hypothesis.settings.register_profile("thingway", deadline=None)  # a busy machine is no fault
hypothesis.settings.load_profile("thingway")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--servers`, `--cluster` and `--costs`."""
    parser.addoption(
        "--cluster",
        action="store_true",
        help="let the platform of the end-to-end tests be a cluster (`thingway up --cluster`)",
    )
    parser.addoption(
        "--servers",
        choices=("embedded", "containers", "external"),
        default="embedded",
        help="where MongoDB, NATS and Redis come from: started here, in containers "
        "(MONGO_IMAGE, NATS_IMAGE, REDIS_IMAGE), or TEST_MONGO_URL, TEST_NATS_URL, TEST_REDIS_URL",
    )
    parser.addoption(
        "--costs",
        type=Path,
        metavar="FILE",
        help="append the processor time of each file of tests to FILE, as lines of JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name a directory for the run's servers; the workers of one run share it."""
    worker_input: dict[str, Any] | None = getattr(config, "workerinput", None)
    if worker_input is not None:
        directory = Path(worker_input["run_directory"])
    else:
        directory = Path(tempfile.mkdtemp(prefix="thingway-test-"))
        (directory / "owner").write_text(str(os.getpid()))
        config.pluginmanager.register(Costs(directory))
    config.stash[RUN_DIRECTORY] = directory
    count_in(directory)
    if out := config.getoption("--costs"):
        config.pluginmanager.register(CostOfEachFile(out))
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish() -> None:
    """Let garbage collections skip modules and collected tests, and run rarely."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist the run's directory."""
    node.workerinput["run_directory"] = str(node.config.stash[RUN_DIRECTORY])


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run's servers when the last test is done."""
    directory = config.stash.get(RUN_DIRECTORY, None)
    if directory is not None and not hasattr(config, "workerinput"):
        end_run(directory)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of CI in which a test was skipped."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:
        return
    reports = reporter.stats.get("skipped", [])
    refused = {report.longrepr[2].removeprefix("Skipped: ") for report in reports}
    if refused:
        reporter.write_line(f"CI does not permit tests to be skipped for these reasons: {refused}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def servers(request: pytest.FixtureRequest, worker_id: str) -> Iterator[Servers]:
    """URLs of MongoDB, Redis and NATS; Redis database and NATS server are this worker's own."""
    number = int(worker_id.removeprefix("gw")) if worker_id != "master" else 0
    kind = request.config.getoption("--servers")
    with provide(kind, request.config.stash[RUN_DIRECTORY], number) as found:
        yield found


@pytest.fixture(scope="session")
def _mongo(servers: Servers) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient(servers.mongo_url) as client:
        yield client


@pytest.fixture(scope="session")
def emptied(_mongo: MongoClient[dict[str, Any]]) -> Iterator[Callable[[str], str]]:
    """Gives a service's database of this worker, emptied: its indexes take longer than a test."""
    names: dict[str, str] = {}

    def empty(service: str) -> str:
        name = names.setdefault(service, f"test_{uuid.uuid4().hex[:16]}")
        databases.empty(_mongo, name)
        return name

    yield empty
    for name in names.values():
        _mongo.drop_database(name)


@pytest.fixture
def database(_mongo: MongoClient[dict[str, Any]]) -> Iterator[str]:
    """Name of a MongoDB database that no other test uses; dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:16]}"
    yield name
    _mongo.drop_database(name)
