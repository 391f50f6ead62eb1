"""Values that a device might well report: for simulators and demonstrations.

All randomness comes from the given generator, so that a seed repeats a run; no clock is
read, so a DATE starts at a fixed day and goes on from there.
"""

import random
from collections.abc import Mapping

from libs.common.tsl._invent import invent
from libs.common.tsl._node import Node, build_tree
from libs.common.tsl.document import ParamSpec, TslDocument
from libs.common.tsl.interface import Values


def plausible_properties(
    document: TslDocument, rng: random.Random, previous: Values | None = None
) -> Values:
    """Give a value for every readable property, within its bounds.

    Numbers walk on from `previous` in small steps, switches and choices change now and
    then, texts and settings stay. Without a usable previous value the default value of
    the document counts, else a fresh one is drawn.
    """
    tree = build_tree(document.properties)
    return _all({key: node for key, node in tree.items() if node.readable}, rng, previous)


def plausible_params(
    params: list[ParamSpec], owner: str, rng: random.Random, previous: Values | None = None
) -> Values:
    """Give values by short name for the outputs of an event or service, `owner` its id."""
    return _all(build_tree(params, owner), rng, previous)


def _all(members: Mapping[str, Node], rng: random.Random, previous: Values | None) -> Values:
    before = previous or {}
    return {key: invent(node, rng, before.get(key)) for key, node in members.items()}
