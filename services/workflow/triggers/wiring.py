"""Puts triggers together: what flows are told to, and what makes them run."""

from collections.abc import Coroutine, Sequence
from typing import Any

from libs.common.bus import Bus, RpcClient, RpcServer
from libs.common.clock import now_ms
from libs.common.store.mongo import Database
from services.workflow.designs.ports import Deployments
from services.workflow.engine.runner import Engine
from services.workflow.triggers.deployed import DeployedFlows
from services.workflow.triggers.hooks.service import HookBook, HookCaller
from services.workflow.triggers.hooks.store import HookStore
from services.workflow.triggers.listeners.following import FollowedIndex
from services.workflow.triggers.listeners.index import ListenerIndex
from services.workflow.triggers.listeners.messages import listen
from services.workflow.triggers.services.messages import EntitiesOverRpc, offer_flows
from services.workflow.triggers.services.service import FlowCaller, Flows, FlowServices
from services.workflow.triggers.timers.service import TimerBook, TimerWatch
from services.workflow.triggers.timers.store import TimerStore


class Triggers:
    """The triggers of one replica."""

    def __init__(self, database: Database, bus: Bus, rpc: RpcClient, flows: Flows) -> None:
        self._bus = bus
        self._timers = TimerStore(database)
        self._hooks = HookStore(database)
        self.deployed = DeployedFlows(database)
        self.followed = FollowedIndex(self.deployed, ListenerIndex())
        self.deployments: Sequence[Deployments] = (
            self.deployed,
            self.followed,
            TimerBook(self._timers, now_ms),
            HookBook(self._hooks),
            FlowServices(EntitiesOverRpc(rpc), flows),
        )
        """To be told what becomes of flows, in this order."""

    def offer(self, rpc: RpcServer, engine: Engine) -> None:
        """Answer calls of flows; `rpc` has to answer requests beside each other."""
        offer_flows(rpc, FlowCaller(self.deployed, engine))

    def hooks(self, engine: Engine) -> HookCaller:
        """Begins flows whose address is posted to."""
        return HookCaller(self._hooks, engine)

    def jobs(self, engine: Engine) -> list[Coroutine[Any, Any, None]]:
        """What runs as long as the replica does."""
        return [
            self.followed.run(),
            listen(self._bus, self.followed, engine).run(),
            TimerWatch(self._timers, engine, now_ms).run(),
        ]
