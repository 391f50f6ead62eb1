"""Folders and S3-compatible storage keep complete backups only."""

import contextlib
import copy
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from deploy.backup import s3, storage
from deploy.backup.s3 import S3Storage
from deploy.backup.storage import (
    FolderStorage,
    Storage,
    StoredBackup,
    build_backup_name,
    choose_expired,
    find_backup,
    open_storage,
)
from deploy.platform.errors import CommandError

NAME = "thingway-20260102T030405Z.backup"
DAYS = [f"thingway-202601{day:02}T030405Z.backup" for day in (1, 2, 10, 11)]
OTHER = "thingway-a-b-20260101T030405Z.backup"


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Storage]:
    """Return the bucket `backups` of a store that runs during the tests."""
    variables = pytest.MonkeyPatch()
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        variables.setenv(name, value)
    storage = S3Storage("s3://backups/tests")
    storage._client.create_bucket(Bucket="backups")
    yield storage
    server.stop()
    variables.undo()


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty folder, or an empty prefix of a bucket."""
    if request.param == "folder":
        return str(tmp_path / "backups")
    request.getfixturevalue("bucket")
    return f"s3://backups/{tmp_path.name}"


@pytest.fixture
def place_storage(place: str, request: pytest.FixtureRequest) -> Storage:
    """Return the storage at the place."""
    if not place.startswith("s3"):
        return open_storage(place)
    target = copy.copy(request.getfixturevalue("bucket"))  # a client takes a while to create
    target._prefix = place.removeprefix("s3://backups/") + "/"
    return target


def store(target: Storage, name: str, content: bytes = b"x") -> None:
    with target.create_backup(name) as out:
        out.write(content)


def test_a_backup_is_stored_in_parts_and_read_back(
    place: str, place_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name appears when it is complete, and it can be found by its folder."""
    monkeypatch.setattr(s3, "_PART_BYTES", 5 * 1024**2)
    monkeypatch.setattr(s3, "_RANGE_BYTES", 1024**2)
    content = os.urandom(1024**2) * 11
    with place_storage.create_backup(NAME) as out:
        for at in range(0, len(content), 700_001):
            out.write(content[at : at + 700_001])
        if place.startswith("s3"):
            assert place_storage.list_backups() == []
    for source in (place, f"{place}/{NAME}"):
        found, name = find_backup(source)
        assert found.locate(name) == f"{place}/{NAME}"
        with found.open_backup(name) as stored:
            assert stored.read() == content
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert place_storage.list_backups() == [StoredBackup(NAME, len(content), None, started)]


def uploads(target: Storage, place: str) -> int:
    """Return the number of incomplete files or uploads."""
    if isinstance(target, FolderStorage):
        return len(list(Path(place).iterdir()))
    assert isinstance(target, S3Storage)
    return len(target._client.list_multipart_uploads(Bucket="backups").get("Uploads", []))


def test_an_interrupted_backup_is_deleted(place: str, place_storage: Storage) -> None:
    """Neither a name nor a part stays."""
    with contextlib.suppress(RuntimeError), place_storage.create_backup(NAME) as out:
        out.write(b"x")
        assert uploads(place_storage, place) == 1
        raise RuntimeError
    assert place_storage.list_backups() == []
    assert uploads(place_storage, place) == 0


def test_the_next_backup_deletes_what_a_kill_left(
    place: str, place_storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only files and uploads that are too old for a running backup."""
    for module in (s3, storage):
        monkeypatch.setattr(module, "MAX_BACKUP_SECONDS", 10**9)
    killed = place_storage.create_backup(NAME)
    killed.__enter__().write(b"x")
    store(place_storage, DAYS[0])
    assert uploads(place_storage, place) == 1 + isinstance(place_storage, FolderStorage)
    for module in (s3, storage):
        monkeypatch.setattr(module, "MAX_BACKUP_SECONDS", -60)
    store(place_storage, DAYS[1])
    assert uploads(place_storage, place) == 2 * isinstance(place_storage, FolderStorage)
    assert [each.name for each in place_storage.list_backups()] == DAYS[:2]


def test_backups_are_listed_by_time_and_found_without_those_of_tenants(
    place: str, place_storage: Storage
) -> None:
    """Other names are ignored."""
    for name in (NAME, OTHER, DAYS[0], "thingway-x.backup", "thingway-20261302T030405Z.backup"):
        store(place_storage, name)
    found = [(each.name, each.tenant) for each in place_storage.list_backups()]
    assert sorted(found[:2]) == [(DAYS[0], None), (OTHER, "a-b")]
    assert found[2:] == [(NAME, None)]
    assert find_backup(place)[1] == NAME
    place_storage.delete_backup(NAME)
    place_storage.delete_backup(DAYS[0])
    with pytest.raises(CommandError, match="no backup of all tenants"):
        find_backup(place)


@pytest.mark.parametrize(
    ("keep", "days", "expired"),
    [
        (None, None, []),
        (1, None, DAYS[:3]),
        (3, None, DAYS[:1]),
        (9, None, []),
        (None, 1, DAYS[:2]),
        (None, 9, DAYS[:1]),
        (3, 1, DAYS[:1]),
        (1, 9, DAYS[:1]),
    ],
)
def test_retention_counts_and_measures_age(
    keep: int | None, days: int | None, expired: list[str]
) -> None:
    """A backup stays by either rule; the newest one and those of other tenants always do."""
    stored = storage.parse_backups((name, 1) for name in (*DAYS, OTHER))
    assert [each.name for each in choose_expired(stored, DAYS[-1], keep, days)] == expired


def test_a_name_contains_the_tenant_and_the_time() -> None:
    """It can be parsed."""
    started = int(datetime(2026, 1, 1, 3, 4, 5, tzinfo=UTC).timestamp() * 1000)
    assert build_backup_name(started, "a-b") == OTHER


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("s3://", "names no bucket"),
        ("s3://missing/a", "s3://missing/a/ rejects ListMultipartUploads: NoSuchBucket"),
    ],
)
def test_an_unusable_bucket_is_named(url: str, reason: str, bucket: S3Storage) -> None:
    """The error is one sentence, without credentials."""
    with pytest.raises(CommandError, match=reason) as raised:
        store(open_storage(url), NAME)
    assert "hunter2" not in str(raised.value)


def test_an_invalid_endpoint_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address without a scheme is a usual mistake."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "minio:9000")
    with pytest.raises(CommandError, match="cannot use s3://a: Invalid endpoint: minio:9000"):
        open_storage("s3://a")


def test_a_file_that_disappears_is_not_listed(tmp_path: Path) -> None:
    """A concurrent backup renames its file."""
    (tmp_path / f".{NAME}.x").symlink_to("renamed")
    store(FolderStorage(tmp_path), NAME)
    assert [each.name for each in FolderStorage(tmp_path).list_backups()] == [NAME]


def test_missing_credentials_are_named(bucket: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variables."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    with pytest.raises(CommandError, match="set AWS_ACCESS_KEY_ID"):
        open_storage("s3://backups/a").list_backups()


def test_a_full_bucket_is_named(bucket: S3Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The incomplete backup is deleted."""
    response = {
        "Error": {"Code": "XMinioStorageFull", "Message": "no space"},
        "ResponseMetadata": {"HTTPStatusCode": 507},
    }

    def reject(**_: object) -> None:
        raise ClientError(response, "UploadPart")

    monkeypatch.setattr(bucket._client, "upload_part", reject)
    with pytest.raises(CommandError, match="the storage of s3://backups/tests/ is full"):
        store(bucket, NAME)
    assert uploads(bucket, "") == 0


def test_a_changed_object_is_not_read_on(bucket: S3Storage) -> None:
    """A reader gets one version of a backup or an error."""
    store(bucket, NAME, b"one")
    opened = contextlib.ExitStack()
    source = opened.enter_context(bucket.open_backup(NAME))
    store(bucket, NAME, b"two")
    with pytest.raises(CommandError, match="PreconditionFailed"), opened:
        source.read()


def test_a_range_is_read_again_after_an_interruption(
    bucket: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restore of a large backup survives a lost connection."""
    store(bucket, NAME, b"content")
    real, calls = bucket._client.get_object, []

    def interrupt(**words: object) -> object:
        calls.append(words)
        if len(calls) == 1:
            raise s3.ReadTimeoutError(endpoint_url="x")
        return real(**words)

    monkeypatch.setattr(bucket._client, "get_object", interrupt)
    with bucket.open_backup(NAME) as source:
        assert source.read() == b"content"
    assert len(calls) == 2
