"""The launcher's servers: secured, durable, and gone when they should be."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import nats
import nats.errors
import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError

from deploy.local import servers
from deploy.local.cli import main
from deploy.local.jetstream import adopt_streams, keep_mqtt_streams_in_memory
from deploy.local.process import inheritable_environment
from deploy.local.servers import NatsListeners, ServerPrograms
from deploy.local.supervisor import Supervisor, run_concurrently, wait_ready
from deploy.platform import admin, mongo_server, ports, redis_server, services
from deploy.platform import state as states
from deploy.platform.errors import CommandError
from deploy.platform.mongo_server import DatabaseUser
from deploy.platform.redis_server import RedisUser
from deploy.platform.state import Addresses, State
from libs.common.bus.streams import RETAINED
from libs.common.contracts.auth import Applications, ListApplications
from libs.common.store.redis import connect_redis

WAIT = 30.0
THINGWAY = [sys.executable, "-c", "import sys; from deploy.local.cli import main; sys.exit(main())"]


class Running:
    """Servers that run on a directory."""

    def __init__(self, state: State, addresses: Addresses, supervisor: Supervisor) -> None:
        self.state = state
        self.addresses = addresses
        self.supervisor = supervisor

    def database_user(self, name: str) -> DatabaseUser:
        return next(user for user in services.database_users(self.state) if user.name == name)

    def key_user(self, name: str) -> RedisUser:
        return next(user for user in services.redis_users(self.state) if user.name == name)

    @contextlib.asynccontextmanager
    async def mongo(self, name: str) -> AsyncIterator[AsyncMongoClient]:
        url = self.database_user(name).url(*self.state.member_addresses("mongod"))
        async with AsyncMongoClient(url) as client:
            yield client

    def redis(self, name: str) -> Redis:
        return Redis.from_url(self.key_user(name).url(*self.state.member_addresses("redis")))

    def nats(self, name: str):
        return nats.connect(
            self.addresses.nats_url.split(","),
            user=name,
            password=self.state.secrets[f"nats.{name}"],
            inbox_prefix=f"_INBOX.{name}".encode(),
            allow_reconnect=False,
        )


@contextlib.asynccontextmanager
async def running(
    directory: Path, found: ServerPrograms, members: int = 1
) -> AsyncIterator[Running]:
    """Start the servers as `thingway up` does, and end them as it does."""
    state = states.load(directory)
    state.hosts = [ports.LOOPBACK] * members
    state.claim_ports(
        [*servers.server_port_names(state), *services.internal_service_names()], reserved=()
    )
    nats_port = ports.claim_random()
    mqtt_port = ports.claim_random()
    listeners = NatsListeners(ports.LOOPBACK, nats_port, mqtt_port).build_for_members(state)
    addresses = Addresses("", "", ",".join(listener.url for listener in listeners))
    context = servers.ServerContext(directory, state, inheritable_environment(os.environ))
    wanted = servers.prepare_servers(found, context, listeners, addresses)
    states.save(directory, state)
    logs = directory / "logs"
    logs.mkdir(exist_ok=True)
    supervisor = Supervisor(logs, print_line=print)
    try:
        await run_concurrently(
            [wait_ready(supervisor.start(one.spec), one.ready) for one in wanted]
        )
        if state.is_cluster:
            password = state.secrets["nats.admin"]
            await adopt_streams(directory / "nats", addresses, password, "thingway-1", members)
        yield Running(state, addresses, supervisor)
    finally:
        await supervisor.stop()


@pytest.fixture(scope="module")
def found() -> ServerPrograms:
    return ServerPrograms.find()


@pytest.fixture(scope="module")
async def platform(
    found: ServerPrograms, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("platform"), found) as started:
        yield started


@contextlib.contextmanager
def pidfds(pids: dict[str, int]):
    handles = {name: os.pidfd_open(pid) for name, pid in pids.items()}
    try:
        yield handles
    finally:
        for handle in handles.values():
            os.close(handle)


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def ended(handle: int) -> None:
    """Wait until the process of a pidfd has ended."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(handle, event.set)
    try:
        async with asyncio.timeout(WAIT):
            await event.wait()
    finally:
        loop.remove_reader(handle)


async def test_a_service_reaches_its_own_database_only(platform: Running) -> None:
    """The user of one service cannot write to another one's database."""
    async with platform.mongo("device") as client:
        await client.thingway_device.trial.insert_one({"x": 1})
        with pytest.raises(OperationFailure):
            await client.thingway_auth.trial.insert_one({"x": 1})


async def test_mongodb_refuses_strangers(platform: Running) -> None:
    """Without a login nothing can be read."""
    async with AsyncMongoClient(
        ports.LOOPBACK, platform.state.ports["mongod"], directConnection=True
    ) as client:
        with pytest.raises(OperationFailure):
            await client.thingway_device.trial.find_one()


async def test_a_start_updates_only_users_that_changed(platform: Running) -> None:
    """A new password replaces the old one; MongoDB hashes no password that is unchanged."""
    members, password = (
        platform.state.member_addresses("mongod"),
        platform.state.secrets["mongo.admin"],
    )
    device = platform.database_user("device")
    trial = DatabaseUser("trial", "first", "thingway_trial")
    await mongo_server.set_up_replica_set(members, password, [device, trial])
    url = DatabaseUser("admin", password, "admin").url(*members)
    async with AsyncMongoClient(url) as client:
        users = client.admin["system.users"]
        before = [await users.find_one({"user": name}) for name in ("device", "trial")]
        await mongo_server.set_up_replica_set(
            members, password, [device, replace(trial, password="second")]
        )
        after = [await users.find_one({"user": name}) for name in ("device", "trial")]
    assert after[0] == before[0]
    assert after[1] != before[1]
    async with AsyncMongoClient(replace(trial, password="second").url(*members)) as client:
        await client.thingway_trial.trial.insert_one({"x": 1})


async def test_redis_users_keep_to_their_keys(platform: Running) -> None:
    """A service has its prefix, and dangerous commands are nobody's."""
    async with platform.redis("gateway") as client:
        await client.set("tw:trial", "1")
        with pytest.raises(NoPermissionError):
            await client.set("other", "1")
        with pytest.raises(NoPermissionError):
            await client.flushall()


async def test_nats_takes_the_service_users(platform: Running) -> None:
    """A service logs in with its password and not with another one's."""
    client = await platform.nats("device")
    assert client.is_connected
    await client.close()
    with pytest.raises((nats.errors.Error, OSError)):
        await nats.connect(
            platform.addresses.nats_url, user="device", password="wrong", allow_reconnect=False
        )


async def test_streams_that_no_service_reads_move_into_memory(platform: Running) -> None:
    """An earlier version had these streams on the disk, where nats-server syncs each stream."""
    client = await platform.nats("admin")
    try:
        js = client.jetstream()
        await js.add_stream(name="$MQTT_out", subjects=["$MQTT.out.>"])
        for _ in range(2):
            await keep_mqtt_streams_in_memory(
                platform.addresses, platform.state.secrets["nats.admin"]
            )
        names = ("$MQTT_out", "$MQTT_qos2in", RETAINED)
        found = [(await js.stream_info(name)).config for name in names]
        assert [config.storage for config in found] == ["memory"] * 3
        assert (found[2].max_msgs, found[2].max_age) == (16, 3600)
    finally:
        await client.close()


async def test_an_absent_service_is_one_clear_line(platform: Running) -> None:
    """While `auth` does not answer, a command says that the platform is not ready."""
    password = platform.state.secrets["nats.admin"]
    with pytest.raises(CommandError, match="not ready"):
        async with admin.connect_rpc(platform.addresses, password) as client:
            await client.call("rpc.auth.list_applications", ListApplications(), Applications)


async def test_a_killed_server_comes_back(platform: Running) -> None:
    """Redis is started again on its port after a kill -9."""
    first = platform.supervisor.pids()["redis"]
    with pidfds({"redis": first}) as handles:
        os.kill(first, 9)
        await ended(handles["redis"])
    url = platform.key_user("gateway").url(*platform.state.member_addresses("redis"))
    async with asyncio.timeout(WAIT):
        await redis_server.wait_ready(url)
    assert platform.supervisor.pids()["redis"] != first


async def test_data_survive_a_restart_and_no_process_is_left(
    tmp_path: Path, found: ServerPrograms
) -> None:
    """A second start has the data, also after the ports had to be others."""
    async with running(tmp_path, found) as first:
        async with first.mongo("device") as client:
            await client.thingway_device.trial.insert_one({"x": 1})
        async with first.redis("gateway") as client:
            await client.set("tw:trial", "1")
        connection = await first.nats("admin")
        await connection.jetstream().add_stream(name="TRIAL", subjects=["trial"])
        await connection.close()
        secrets = dict(first.state.secrets)
        pids = first.supervisor.pids()
    assert not [name for name, pid in pids.items() if is_alive(pid)]
    async with (
        await asyncio.start_server(
            lambda _, writer: writer.close(), ports.LOOPBACK, first.state.ports["mongod"]
        ),
        running(tmp_path, found) as second,
    ):
        assert second.state.secrets == secrets
        assert second.state.ports["mongod"] != first.state.ports["mongod"]
        await assert_data(second)


async def assert_data(second: Running) -> None:
    async with second.mongo("device") as client:
        assert await client.thingway_device.trial.count_documents({}) == 1
    async with second.redis("gateway") as client:
        assert await client.get("tw:trial") == b"1"
    connection = await second.nats("admin")
    assert (await connection.jetstream().stream_info("TRIAL")).config.name == "TRIAL"
    await connection.close()


def up(directory: Path, **options: int) -> int:
    """Return the exit code of `thingway up`, which ends before it starts a process."""
    chosen = {name: ports.claim_random() for name in ("port", "mqtt-port", "nats-port")}
    chosen |= {name.replace("_", "-"): value for name, value in options.items()}
    arguments = [part for name, port in chosen.items() for part in (f"--{name}", str(port))]
    return main(["up", "--data", str(directory), *arguments])


@pytest.mark.parametrize("option", ["port", "mqtt_port", "nats_port"])
def test_a_taken_port_is_one_line_and_exit_code_2(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], option: str
) -> None:
    """The line names the port and the option to choose another with."""
    with socket.create_server((ports.LOOPBACK, 0)) as server:
        taken = server.getsockname()[1]
        assert up(tmp_path, **{option: taken}) == 2
    printed = capfd.readouterr()
    assert len((printed.out + printed.err).splitlines()) == 1
    assert str(taken) in printed.err
    assert f"--{option.replace('_', '-')}" in printed.err


def test_an_unwritable_directory_is_one_line_and_exit_code_2(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A place where nobody can write, not even root, is refused."""
    assert up(Path("/proc/thingway")) == 2
    printed = capfd.readouterr().err
    assert len(printed.splitlines()) == 1
    assert "--data" in printed


def test_commands_without_a_platform_end_with_exit_code_1(tmp_path: Path) -> None:
    """`thingway app list` without a running platform says so in one line."""
    done = subprocess.run(
        [*THINGWAY, "app", "list", "--data", tmp_path],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
async def test_a_single_server_grows_into_a_cluster(found: ServerPrograms, tmp_path: Path) -> None:
    """Documents, keys, messages and unacknowledged messages of a consumer remain."""
    async with running(tmp_path, found) as alone:
        async with alone.mongo("device") as client:
            await client["thingway_device"]["things"].insert_one({"_id": 1})
        async with alone.redis("gateway") as redis:
            await redis.set("tw:key", "kept")
        async with contextlib.AsyncExitStack() as stack:
            client = await alone.nats("admin")
            stack.push_async_callback(client.close)
            stream = client.jetstream()
            await stream.add_stream(name="EVENTS", subjects=["event.>"])
            for number in range(10):
                await stream.publish(f"event.{number}", b"x")
            reader = await stream.pull_subscribe("event.>", durable="reader", stream="EVENTS")
            for message in await reader.fetch(4):
                await message.ack_sync()
    async with running(tmp_path, found, members=3) as grown:
        async with grown.mongo("device") as client:
            assert await client["thingway_device"]["things"].find_one() == {"_id": 1}
            assert len(client.nodes) == 3
        async with connect_redis(
            grown.key_user("gateway").sentinel_url(grown.state.member_addresses("sentinel"))
        ) as redis:
            assert await redis.get("tw:key") == b"kept"
        async with contextlib.AsyncExitStack() as stack:
            client = await grown.nats("admin")
            stack.push_async_callback(client.close)
            stream = client.jetstream()
            reader = await stream.pull_subscribe("event.>", durable="reader", stream="EVENTS")
            rest = await reader.fetch(10)
            assert [one.metadata.sequence.stream for one in rest] == [5, 6, 7, 8, 9, 10]
            assert (await stream.stream_info("EVENTS")).config.num_replicas == 3
