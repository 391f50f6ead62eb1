"""Documents of all tenants, picked so that none waits behind another one's."""

from typing import Any

from libs.common.store.mongo import Collection, Document


async def ids_in_turns(collection: Collection, query: Document, order: str, most: int) -> list[Any]:
    """Return `_id` of up to `most` documents: the first of each tenant by `order`, the second, …"""
    first = {"partitionBy": "$tenant", "sortBy": {order: 1}}
    stages: list[Document] = [
        {"$match": query},
        {"$project": {"tenant": 1, order: 1}},
        {"$setWindowFields": {**first, "output": {"turn": {"$documentNumber": {}}}}},
        {"$sort": {"turn": 1, order: 1}},
        {"$limit": most},
    ]
    return [found["_id"] async for found in await collection.aggregate(stages)]
