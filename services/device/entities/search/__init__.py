"""Search over all entities of a tenant, none of which is stored.

Devices are what MongoDB has. Those of one model have the same members, so numbers of
entities are numbers of devices times numbers of members, and a page is cut out of a walk
over devices in the order that is asked for. What no number of devices can say, the entities
of integrations, custom entities and entities that are granted one by one, is enumerated.
"""
