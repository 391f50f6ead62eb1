"""`httpIn`: the flow begins when somebody calls its address."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import Fault, Parameters, parameter, read_map

Method = Literal["POST", "GET", "PUT", "DELETE"]
MOST_SEGMENTS = 8
"""Of an address: a path of so many may be meant by 2 to the power of so many addresses."""
LONGEST_URL = 512
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,128}").fullmatch
_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}").fullmatch
_ANY = "{}"


class Address(NamedTuple):
    """An address with its variables: `devices/{id}/report`."""

    segments: tuple[str, ...]
    """`{}` where a variable stands; other segments are percent-encoded in one way."""
    names: tuple[str, ...]
    """Of the variables, in their order."""

    @property
    def shape(self) -> str:
        """What addresses have in common that are called by the same paths."""
        return "/".join(self.segments)

    def variables(self, path: str) -> dict[str, str]:
        """What the variables are in a path of this shape."""
        parts = zip(self.segments, segments_of(path), strict=True)
        found = [unquote(part) for segment, part in parts if segment == _ANY]
        return dict(zip(self.names, found, strict=True))


class HttpInParameters(Parameters):
    """Who may begin the flow, and how."""

    method: Annotated[Method, parameter("Method", "Of the requests that begin the flow")] = "POST"
    url: Annotated[
        str,
        parameter(
            "URL",
            "The end of the address, `/workflow-http-in/<access key>/<url>`, for callers with the "
            "HTTP credential; `{name}` stands for any one segment",
            max_length=LONGEST_URL,
        ),
    ] = ""
    token: Annotated[
        str,
        parameter(
            "Token",
            "The end of another address, `/workflow/hooks/<token>`; whoever knows it may begin the "
            "flow without a login. 32 to 128 letters, digits, - and _, made at random",
            secret=True,
        ),
    ] = ""

    def faults(self) -> Iterable[Fault]:
        """No address at all, one that cannot be, or a token that could be guessed."""
        if not self.url.strip("/ ") and not self.token:
            yield Fault("url", "must not be empty, unless there is a token")
        if self.token and not _TOKEN(self.token):
            yield Fault("token", "must have 32 to 128 letters, digits, - and _, made at random")
        if self.url and (reason := _wrong_with(self.url)):
            yield Fault("url", reason)

    @property
    def address(self) -> Address | None:
        """The address, when there is one."""
        return address_of(self.url) if self.url.strip("/ ") else None


class HttpIn(Entry[HttpInParameters]):
    """Begins a flow with a request: `body`, `params` (its query), `header`, `url` and variables."""

    name = "httpIn"
    title = "HTTP In"
    description = "Runs the flow when its address is called"

    def entered(self, parameters: HttpInParameters, given: Any) -> dict[str, Any]:
        """The request; what is missing in a test is empty.

        Each variable of the address stands in `pathParam`, and beside it as `pathParam.{name}`.
        """
        empty: dict[str, Any] = {
            "body": None,
            "params": {},
            "header": {},
            "url": "",
            "pathParam": {},
        }
        found: dict[str, Any] = {**empty, **read_map(given, " with body, params and header")}
        variables = found["pathParam"] if isinstance(found["pathParam"], Mapping) else {}
        return {f"pathParam.{name}": value for name, value in variables.items()} | found


def address_of(url: str) -> Address:
    """Read an address that is a good one."""
    segments, names = [], []
    for segment in segments_of(url):
        variable = _VARIABLE(segment)
        segments.append(_ANY if variable else _plain(segment))
        names += [variable[1]] if variable else []
    return Address(tuple(segments), tuple(names))


def shapes_of(path: str) -> list[str]:
    """The shapes of the addresses that a path calls; none when it has too many segments."""
    segments = segments_of(path)
    if not segments or len(segments) > MOST_SEGMENTS:
        return []
    return ["/".join(one) for one in product(*((_plain(part), _ANY) for part in segments))]


def segments_of(path: str) -> Sequence[str]:
    """The parts of a path; slashes at both ends count for nothing."""
    path = path.strip().strip("/")
    return path.split("/") if path else []


def _plain(segment: str) -> str:
    return quote(unquote(segment), safe="")


def _wrong_with(url: str) -> str:
    segments = segments_of(url)
    names = [found[1] for one in segments if (found := _VARIABLE(one))]
    if len(segments) > MOST_SEGMENTS:
        return f"has more than {MOST_SEGMENTS} segments"
    if any(not one or one in {".", ".."} for one in segments):
        return "has an empty segment, or one of dots"
    if any(
        set(one) & set("{}?#") or not one.isprintable() for one in segments if not _VARIABLE(one)
    ):
        return "may have {name} as a whole segment, and no other { } ? or #"
    return "names a variable twice" if len(set(names)) < len(names) else ""
