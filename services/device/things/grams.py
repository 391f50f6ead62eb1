"""Grams: the runs of four characters by which text in a device's name or SN is found.

A document has those of its name and of its SN (`grams`), without regard to case, and the last
three characters of each. An index has them in the order of ids. What contains a text has all of
its grams, so a search looks at the devices that have the rarest one, and the regular expression
decides. A text of three characters is the beginning of a gram.

MongoDB's expressions compare without regard to case as `folded` does, or more strictly: tried
with every character that has a case.
"""

from collections.abc import Iterable

LENGTH, SHORTEST = 4, 3
"""Characters of a gram, and of the last one of a text."""
INDEX = "text"
"""Of `grams`, tenant, application and id."""
MOST = 8
"""Grams of a text that are looked at to find a rare one."""


def folded(text: str) -> str:
    """`text` in the form that all its spellings in upper and lower case have."""
    return text.upper().casefold()


def grams_of(*texts: str) -> list[str]:
    """What a device of these texts is found by, in order."""
    return sorted({gram for text in texts for gram in _runs(folded(text), SHORTEST)})


def wanted_grams(texts: Iterable[str]) -> list[str]:
    """At most `MOST` grams that a device with all of these texts has, from all over them.

    When no text is long enough, the beginning of a gram; none where all are too short.
    """
    forms = [folded(text) for text in texts]
    found = list(dict.fromkeys(gram for form in forms for gram in _runs(form, LENGTH)))
    if len(found) > MOST:
        return [found[at * len(found) // MOST] for at in range(MOST)]
    return found or [form for form in forms if len(form) == SHORTEST][:1]


def _runs(form: str, shortest: int) -> Iterable[str]:
    return (form[at : at + LENGTH] for at in range(len(form) - shortest + 1))
