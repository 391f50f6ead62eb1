import asyncio, time
import httpx, pytest
from libs.common.contracts.auth import *
from libs.common.store.redis import connect_redis
from tests.integration.auth.test_devices import issue

async def test_503(auth, servers):
    app = await auth.application()
    await auth.redis.connection_pool.disconnect()
    pool = auth.redis.connection_pool
    await pool.disconnect()
    pool.reset() if hasattr(pool,"reset") else None
    pool.connection_kwargs["port"] = 1
    a = await auth.http.post("/oauth/token", data={"grant_type":"client_credentials","client_id":app.client_id,"client_secret":app.client_secret})
    print(a.status_code, a.text, a.headers)
    try:
        await auth.call("rotate_application_secret", ApplicationRef(app.application_id), ApplicationSecret)
    except Exception as e: print(repr(e), getattr(e,'status',None), getattr(e, 'message', None))
    print((await auth.http.get("/readyz")).text)

async def test_speed(auth):
    devs=[DeviceRef(f"S{i}", i, "t1") for i in range(300)]
    t=time.perf_counter()
    keys=[await issue(auth,d) for d in devs]
    print("issue/s", 300/(time.perf_counter()-t))
    import nats
    async def one(d,k):
        c=await nats.connect(auth.door.url,user=d.sn,password=k,allow_reconnect=False); await c.close()
    for _ in range(2):
        t=time.perf_counter()
        await asyncio.gather(*(one(d,k) for d,k in zip(devs,keys)))
        print("logins/s (client in same process)", 300/(time.perf_counter()-t))
    app = await auth.application()
    t=time.perf_counter()
    for _ in range(300): await auth.log_in(app)
    print("token/s seq", 300/(time.perf_counter()-t))
    t=time.perf_counter()
    from libs.common.contracts.auth import ApplicationRef
    from services.auth.migrations import MIGRATIONS
    for _ in range(5): await asyncio.gather(*(auth.log_in(app) for _ in range(200)))
    await auth.call("rotate_application_secret", ApplicationRef(app.application_id), ApplicationSecret)
    from libs.common.identity.tokens import TokenWriter
    from libs.common.identity import Principal, Kind
    w=TokenWriter(auth.redis, access_life=3600, refresh_life=2592000)
    p=Principal(kind=Kind.APPLICATION,tenant="t",subject="9")
    for _ in range(100): await asyncio.gather(*(w.issue(p,1) for _ in range(100)))
    t=time.perf_counter(); await w.revoke_subject(Kind.APPLICATION,"9",2); print("revoke 10k families", time.perf_counter()-t)

async def test_schema(auth):
    import schemathesis
    from schemathesis import openapi
    schema = openapi.from_asgi("/schema/openapi.json", auth.app) if False else None
    doc=(await auth.http.get("/schema/openapi.json")).json()
    import json; print(json.dumps(doc["paths"]["/oauth/token"]["post"], indent=1, ensure_ascii=False)[:3000])
