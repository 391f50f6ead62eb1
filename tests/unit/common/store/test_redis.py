import pytest
from redis.asyncio.sentinel import SentinelConnectionPool

from libs.common.store.redis import SENTINEL_PORT, connect_redis


async def test_sentinels_are_asked_for_the_primary_by_its_name():
    """Each host is a Sentinel, on the usual port unless told; the login is for both kinds."""
    redis = connect_redis("redis+sentinel://device:a%40b@h1:26400,h2/thingway")

    pool = redis.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "thingway"
    options = [
        sentinel.connection_pool.connection_kwargs for sentinel in pool.sentinel_manager.sentinels
    ]
    assert [(option["host"], option["port"]) for option in options] == [
        ("h1", 26400),
        ("h2", SENTINEL_PORT),
    ]
    assert {(option["username"], option["password"]) for option in options} == {("device", "a@b")}
    assert pool.connection_kwargs["password"] == "a@b"


async def test_sentinels_may_have_a_login_of_their_own():
    """An empty password says that they have none."""
    redis = connect_redis("redis+sentinel://u:p@h1/x?sentinel_username=&sentinel_password=")

    (sentinel,) = redis.connection_pool.sentinel_manager.sentinels
    assert sentinel.connection_pool.connection_kwargs["password"] is None
    assert redis.connection_pool.connection_kwargs["password"] == "p"


@pytest.mark.parametrize("url", ["redis+sentinel://h1:26379", "redis+sentinel:///thingway"])
async def test_an_address_without_hosts_or_name_is_refused(url: str):
    """The message says what is missing."""
    with pytest.raises(ValueError, match="needs hosts and the name of the primary"):
        connect_redis(url)
