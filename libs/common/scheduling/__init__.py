"""Fair shares of what tenants use together: workers (`FairScheduler`) and queues (`FairQueue`).

`turns.take_turns` runs endless jobs with them.

Each tenant has a lane. Lanes take turns by deficit round robin (Shreedhar and Varghese, 1996),
weighted by what each has used. A lane's backlog is bounded in items and in bytes. It is fair within
one process; replicas each serve what reaches them (docs/decisions/0051).
"""

from libs.common.scheduling.lanes import LaneFull, Lanes
from libs.common.scheduling.scheduler import Caps, FairQueue, FairScheduler

__all__ = ["Caps", "FairQueue", "FairScheduler", "LaneFull", "Lanes"]
