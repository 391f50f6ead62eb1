"""`thingway backup` and `restore` on one machine; under load they are in `tests/faults`."""

import json
import subprocess
import time
from pathlib import Path

import aiohttp
import msgspec
import pyrage
import pytest
from pymongo import MongoClient

from deploy.backup.archive import ArchiveReader
from deploy.backup.archive_key import ArchiveKey
from deploy.backup.stores import DATABASES
from deploy.backup.tenant_collections import (
    EXCLUSION_REASON_BY_COLLECTION,
    TENANT_COLLECTIONS,
    find_collection,
)
from deploy.checkup.processes import parse_metrics_and_version
from deploy.local.process import PROJECT_ROOT
from tests.e2e.callers import Application
from tests.e2e.platform import THINGWAY, Platform, run_command

pytestmark = pytest.mark.xdist_group("platform")


def thingway(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    return subprocess.run(
        [THINGWAY, *map(str, words)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


SECRET, MODEL = "s3cret-backup-5772", "E2E-SAFE"
PROPERTIES = [
    {"id": "pin", "name": "pin", "accessMode": "W", "dataSpec": {"dataType": "STRING"}},
    {"id": "level", "name": "level", "accessMode": "R", "dataSpec": {"dataType": "INT"}},
]


async def test_a_backup_is_written_while_the_platform_runs_and_read_with_its_key(
    platform: Platform, application: Application, tmp_path: Path
) -> None:
    """It is one file of mode 0600, unreadable without the key; metrics show its age and size.

    It has no write-only values: neither of open commands, nor of what waits for an MQTT session,
    nor of retained reports.
    """
    identity = pyrage.x25519.Identity.generate()
    key = tmp_path / "key.txt"
    key.write_text(f"# kept elsewhere\n{identity}\n")
    tsl = {"version": "v1.0", "properties": PROPERTIES, "events": [], "services": []}
    product = {"name": "Safe", "snPrefixes": [], "tsl": tsl}
    await application.data("PUT", f"/products/{MODEL}", product)
    safe = await application.add_device(model=MODEL)
    async with safe.mqtt(identifier="safe-session", clean=False) as mqtt:
        path, wanted = f"/devices/{safe.id}/properties", {"properties": {"pin": SECRET}}
        await application.data("PATCH", path, wanted)
        command = await mqtt.command()
        report = json.dumps({"properties": {"pin": SECRET, "level": 1}})
        await mqtt.client.publish(f"thing/{safe.sn}/up/report", report, retain=True)
        await safe.stored({"level": 1})

        to = ("--recipient", identity.to_public(), "--verify", "--identity-file", key)
        written = thingway("backup", tmp_path / "out", "--data", platform.directory, *to)
        await mqtt.answer(command)

    assert written.returncode == 0, written.stderr
    (file,) = (tmp_path / "out").iterdir()
    url = f"http://127.0.0.1:{platform.state.ports['device']}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        shown, _ = parse_metrics_and_version(await answer.text())
    read = run_command("restore", file, "--dry-run", "--identity-file", key)
    refused = run_command("restore", file, "--dry-run")
    private = ArchiveKey(identities=(str(identity),))
    with file.open("rb") as source, ArchiveReader(source, private) as records:
        contents = [msgspec.msgpack.encode(record) for record in records]

    assert file.stat().st_mode & 0o777 == 0o600
    assert written.stdout.strip() == str(file)
    assert "streams with" in read.stderr
    finished = shown["thingway_backup_finished_timestamp_seconds"]
    assert time.time() - finished < 60
    assert shown["thingway_backup_verified_timestamp_seconds"] == finished
    assert shown["thingway_backup_bytes"] == file.stat().st_size
    assert shown["thingway_backup_disk_bytes"] > 0
    assert (refused.returncode, "--identity-file" in refused.stderr) == (1, True)
    assert any(MODEL.encode() in content for content in contents)
    assert not [content for content in contents if SECRET.encode() in content]


async def test_every_collection_has_a_row(platform: Platform, application: Application) -> None:
    """A row gives the query for a tenant's documents, or why they do not move with it."""
    device = await application.add_device()
    await device.http("POST", "report", {"properties": {"counter": 1}}, wait="stored")
    state = platform.state
    login = f"backup:{state.secrets['mongo.backup']}"
    with MongoClient[dict[str, object]](
        f"mongodb://{login}@127.0.0.1:{state.ports['mongod']}/?directConnection=true"
    ) as client:
        found = {
            f"{database.removeprefix('thingway_')}.{name}"
            for database in DATABASES
            for name in client[database].list_collection_names()
        }

    assert [
        one
        for one in sorted(found)
        if not find_collection(one) and one not in EXCLUSION_REASON_BY_COLLECTION
    ] == []
    assert [one for one in EXCLUSION_REASON_BY_COLLECTION if find_collection(one)] == []
    rows = [
        row.name
        for row in TENANT_COLLECTIONS
        if not any(row.name_pattern.fullmatch(entry) for entry in found)
    ]
    assert rows == []


def test_a_backup_goes_into_empty_directories_only(tmp_path: Path, platform: Platform) -> None:
    """Nothing there changes; a partial restore cannot start.

    The backup is a stream, of stores that are given as URLs.
    """
    file = tmp_path / "a.backup"
    inner = platform.state.ports
    urls = (
        *("--mongo-url", f"mongodb://127.0.0.1:{inner['mongod']}/?directConnection=true"),
        *("--nats-url", f"nats://127.0.0.1:{platform.nats_port}"),
        *("--redis-url", f"redis://127.0.0.1:{inner['redis']}/0"),
    )
    with file.open("wb") as out:
        words = [THINGWAY, "backup", "-", "--data", platform.directory, *urls]
        subprocess.run(words, cwd=PROJECT_ROOT, stdout=out, check=True, timeout=300)
    full = run_command("restore", file, "--data", platform.directory, *urls)
    assert (full.returncode, "is not empty" in full.stderr) == (1, True)
    into = tmp_path / "data"
    into.mkdir()
    (into / "precious").touch()
    refused = run_command("restore", file, "--data", into)
    assert (refused.returncode, "not empty" in refused.stderr) == (1, True)

    (into / "restoring").touch()
    started = thingway("up", "--data", into)
    assert (started.returncode, len(started.stderr.splitlines())) == (2, 1)
    assert sorted(one.name for one in into.iterdir()) == ["lock", "precious", "restoring"]
