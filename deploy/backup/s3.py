"""Backups in a bucket of S3-compatible storage.

The credentials, region, endpoint and certificate authority come from the variables of AWS
(`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_S3`,
`AWS_CA_BUNDLE`), or from the machine's role. A backup is a multipart upload of parts with their
MD5, so the store detects changed parts. An object appears only when the upload is completed.
"""

import base64
import contextlib
import hashlib
import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, cast

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    IncompleteReadError,
    NoCredentialsError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.session import get_session

from deploy.backup.storage import MAX_BACKUP_SECONDS, S3_SCHEME, StoredBackup, parse_backups
from deploy.platform.errors import CommandError

_PART_BYTES = 64 * 1024**2
"""Bytes of each part of an upload but the last; S3 allows 10,000 parts, so 640 GB."""
_RANGE_BYTES = 16 * 1024**2
"""Bytes of a backup that one request reads."""
_MAX_ATTEMPTS = 5
_FULL_STATUS, _FULL_CODES = 507, frozenset({"QuotaExceeded", "XMinioStorageFull"})
"""Status and error codes of stores without space."""


class S3Storage:
    """Backups under a prefix of a bucket."""

    def __init__(self, url: str) -> None:
        """Connect to `s3://BUCKET/PREFIX`; raise `CommandError` if `url` names no bucket."""
        self._bucket, _, prefix = url.removeprefix(S3_SCHEME).rstrip("/").partition("/")
        if not self._bucket:
            raise CommandError(f"{url} names no bucket: give {S3_SCHEME}BUCKET/PREFIX")
        self._prefix = f"{prefix}/" if prefix else ""
        config = Config(
            connect_timeout=10,
            retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
            # Not every S3-compatible store knows the newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            with self._convert_errors():
                self._client: Any = get_session().create_client("s3", config=config)
        except ValueError as error:  # an endpoint without https://
            raise CommandError(f"cannot use {url}: {error}") from error

    def locate(self, name: str) -> str:
        """Return the URL of a backup."""
        return f"{S3_SCHEME}{self._bucket}/{self._prefix}{name}"

    def list_backups(self) -> list[StoredBackup]:
        """Return the complete backups, oldest first."""
        with self._convert_errors():
            pages = self._client.get_paginator("list_objects_v2").paginate(**self._list_arguments)
            return parse_backups(
                (item["Key"].removeprefix(self._prefix), item["Size"])
                for page in pages
                for item in page.get("Contents", [])
            )

    @contextlib.contextmanager
    def create_backup(self, name: str) -> Iterator[BinaryIO]:
        """Yield a stream that uploads a backup; delete the uploaded parts on failure."""
        with self._convert_errors():
            self._abort_interrupted_uploads()
            upload = _Upload(self._client, self._object_arguments(name))
            try:
                yield cast("BinaryIO", upload)
                upload.complete()
            except BaseException:
                upload.abort()
                raise

    @contextlib.contextmanager
    def open_backup(self, name: str) -> Iterator[BinaryIO]:
        """Yield a stream that reads a backup in ranges; repeat a range after a failure."""
        with self._convert_errors():
            head = self._client.head_object(**self._object_arguments(name))
            request = {**self._object_arguments(name), "IfMatch": head["ETag"]}
            download = _Download(self._client, request, head["ContentLength"])
            yield io.BufferedReader(download)

    def delete_backup(self, name: str) -> None:
        """Delete a backup."""
        with self._convert_errors():
            self._client.delete_object(**self._object_arguments(name))

    def measure_used_and_total(self) -> tuple[int, int]:
        """Return zeros: a bucket has no fixed size."""
        return 0, 0

    def _object_arguments(self, name: str) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Key": self._prefix + name}

    @property
    def _list_arguments(self) -> dict[str, Any]:
        return {"Bucket": self._bucket, "Prefix": self._prefix + "thingway-"}

    def _abort_interrupted_uploads(self) -> None:
        """Delete parts of uploads older than `MAX_BACKUP_SECONDS`: storage costs money."""
        oldest = datetime.now(UTC) - timedelta(seconds=MAX_BACKUP_SECONDS)
        pages = self._client.get_paginator("list_multipart_uploads").paginate(
            **self._list_arguments
        )
        for page in pages:
            for upload in page.get("Uploads", []):
                name = upload["Key"].removeprefix(self._prefix)
                if StoredBackup.parse(name, 0) and upload["Initiated"] < oldest:
                    self._client.abort_multipart_upload(
                        **self._object_arguments(name), UploadId=upload["UploadId"]
                    )

    @contextlib.contextmanager
    def _convert_errors(self) -> Iterator[None]:
        """Turn errors of the store into a `CommandError` that names the bucket."""
        place = f"{S3_SCHEME}{self._bucket}/{self._prefix}"
        try:
            yield
        except ClientError as error:
            store_error = error.response["Error"]
            reason = f"{store_error.get('Code')}: {store_error.get('Message')}"
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            if status == _FULL_STATUS or store_error.get("Code") in _FULL_CODES:
                raise CommandError(
                    f"the storage of {place} is full, and the incomplete backup was deleted "
                    f"({reason}). Free space, or choose another bucket"
                ) from error
            raise CommandError(f"{place} rejects {error.operation_name}: {reason}") from error
        except NoCredentialsError as error:
            raise CommandError(
                f"no credentials for {place}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        except BotoCoreError as error:
            raise CommandError(f"cannot use {place}: {error}") from error


class _Upload(io.RawIOBase):
    """A stream whose bytes become the parts of one object."""

    def __init__(self, client: Any, target: dict[str, Any]) -> None:
        self._client = client
        self._buffer = bytearray()
        self._parts: list[dict[str, Any]] = []
        created = client.create_multipart_upload(**target)
        self._target = {**target, "UploadId": created["UploadId"]}

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        while len(self._buffer) >= _PART_BYTES:
            self._send_part()
        return len(data)

    def complete(self) -> None:
        """Upload the last part and complete the upload, so that the object appears."""
        if self._buffer:
            self._send_part()
        self._client.complete_multipart_upload(
            **self._target, MultipartUpload={"Parts": self._parts}
        )

    def abort(self) -> None:
        """Delete the uploaded parts; if that fails, the next backup deletes them."""
        with contextlib.suppress(BotoCoreError, ClientError):
            self._client.abort_multipart_upload(**self._target)

    def _send_part(self) -> None:
        part = bytes(self._buffer[:_PART_BYTES])
        del self._buffer[:_PART_BYTES]
        number = len(self._parts) + 1
        md5 = hashlib.md5(part, usedforsecurity=False).digest()
        sent = self._client.upload_part(
            **self._target, PartNumber=number, Body=part, ContentMD5=base64.b64encode(md5).decode()
        )
        self._parts.append({"PartNumber": number, "ETag": sent["ETag"]})


class _Download(io.RawIOBase):
    """The bytes of one version of an object."""

    def __init__(self, client: Any, request: dict[str, Any], size: int) -> None:
        self._client = client
        self._wanted = request
        self._size = size
        self._at = 0
        self._range = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._range and self._at < self._size:
            self._range = memoryview(self._read_range())
            self._at += len(self._range)
        count = min(len(buffer), len(self._range))
        buffer[:count] = self._range[:count]
        self._range = self._range[count:]
        return count

    def _read_range(self) -> bytes:
        last = min(self._at + _RANGE_BYTES, self._size) - 1
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                answer = self._client.get_object(**self._wanted, Range=f"bytes={self._at}-{last}")
                content: bytes = answer["Body"].read()
            except (IncompleteReadError, ReadTimeoutError, ResponseStreamingError):
                if attempt == _MAX_ATTEMPTS:
                    raise
            else:
                break
        return content
