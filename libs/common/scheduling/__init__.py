"""Fair sharing between tenants: workers (`FairScheduler`) and queues (`FairQueue`).

`turns.take_turns` runs endless jobs with them. Each tenant has a lane. Lanes take turns by deficit
round robin (Shreedhar and Varghese, 1996), weighted by their past usage. A lane's backlog is
limited in items and bytes. Fairness holds within a process; each replica schedules its own requests
(docs/decisions/0051).
"""

from libs.common.scheduling.lanes import LaneFull, Lanes
from libs.common.scheduling.scheduler import Caps, FairQueue, FairScheduler

__all__ = ["Caps", "FairQueue", "FairScheduler", "LaneFull", "Lanes"]
