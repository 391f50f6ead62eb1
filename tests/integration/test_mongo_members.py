"""A replica set of servers that are set up from elsewhere, as the chart's job does it."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import AsyncMongoClient, MongoClient
from pymongo.errors import OperationFailure

from deploy.local import programs
from deploy.platform import keys, mongo_server, ports
from deploy.platform.files import write_private
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.ports import LOOPBACK
from tests.e2e.waiting import until

USER = DatabaseUser("device", "Passw0rd", "thingway_device")
pytestmark = pytest.mark.slow

WAIT = 60.0


@pytest.fixture
def key(tmp_path: Path) -> str:
    """What stands in the members' key file."""
    made = keys.new_mongo_key()
    write_private(tmp_path / "key", made.encode())
    return made


@pytest.fixture
def members(tmp_path: Path, key: str) -> Iterator[list[str]]:
    """Three servers that know nothing of each other yet."""
    with contextlib.ExitStack() as ending:
        found = []
        for number in range(3):
            port = ports.claim_random()
            data = tmp_path / str(number)
            data.mkdir()
            words = mongo_server.server_command(
                programs.find_program(programs.MONGOD).path, data, LOOPBACK, port, tmp_path / "key"
            )
            process = ending.enter_context(
                subprocess.Popen(words, stdout=subprocess.DEVNULL, env=os.environ)
            )
            ending.callback(process.kill)
            found.append(f"127.0.0.1:{port}")
        yield found


async def test_a_replica_set_of_one_grows_to_three(members: list[str], key: str):
    """The users stay, and all members are in it; doing it again changes nothing."""
    for wanted in (members[:1], members, members):
        async with asyncio.timeout(WAIT):
            await mongo_server.set_up_with_key_file(wanted, key, "secret", [USER])
    url = f"mongodb://device:Passw0rd@{','.join(members)}/?authSource=thingway_device"
    async with AsyncMongoClient(f"{url}&replicaSet=rs0&w=3&wtimeoutMS=30000") as client:
        await client["thingway_device"]["devices"].insert_one({"_id": 1})

        async def all_are_in() -> bool:  # a new one is not told to clients until it has caught up
            hello = await client.admin.command("hello")
            return sorted(hello["hosts"]) == sorted(members)

        await until(all_are_in, WAIT)


async def test_every_client_has_to_log_in(members: list[str], key: str):
    """Clients over the loopback interface have to log in, too, once there is a user."""
    async with asyncio.timeout(WAIT):
        await mongo_server.set_up_with_key_file(members[:1], key, "secret", [USER])
    with (
        MongoClient(members[0], directConnection=True) as client,
        pytest.raises(OperationFailure, match="requires authentication"),
    ):
        client["thingway_device"]["devices"].find_one()


async def test_the_data_get_the_format_of_the_running_version(members: list[str], key: str):
    """The format of the version before is used until then."""
    async with asyncio.timeout(WAIT):
        await mongo_server.set_up_with_key_file(members[:1], key, "secret", [USER])
    url = f"mongodb://admin:secret@{members[0]}/?authSource=admin&directConnection=true"
    async with AsyncMongoClient(url) as client:
        assert await mongo_server.raise_compatibility_version(client) is None
        await client.admin.command("setFeatureCompatibilityVersion", "5.0")
        assert await mongo_server.raise_compatibility_version(client) == "6.0"
