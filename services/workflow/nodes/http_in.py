"""`httpIn`: starts a flow when a client calls its address."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from services.workflow.nodes.base import Entry
from services.workflow.nodes.parameters import (
    ParameterFault,
    Parameters,
    parameter_meta,
    require_map,
)

Method = Literal["POST", "GET", "PUT", "DELETE"]
MAX_ADDRESS_SEGMENTS = 8
"""Maximum segments of an address, as a path with n segments can match 2^n addresses."""
MAX_URL_CHARACTERS = 512
_match_token = re.compile(r"[A-Za-z0-9_-]{32,128}").fullmatch
_match_variable = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]{0,63})\}").fullmatch
_VARIABLE_SHAPE = "{}"


class FlowAddress(NamedTuple):
    """An address with variables, such as `devices/{id}/report`."""

    segments: tuple[str, ...]
    """`{}` for variables; other segments are percent-encoded uniformly."""
    names: tuple[str, ...]
    """Names of the variables, in the order of their segments."""

    @property
    def shape(self) -> str:
        """Return the form that all addresses matching the same paths share."""
        return "/".join(self.segments)

    def read_variables(self, path: str) -> dict[str, str]:
        """Return the values of the variables in a path of this shape."""
        parts = zip(self.segments, split_path(path), strict=True)
        values = [unquote(part) for segment, part in parts if segment == _VARIABLE_SHAPE]
        return dict(zip(self.names, values, strict=True))


class HttpInParameters(Parameters):
    """The address of the flow."""

    method: Annotated[Method, parameter_meta("Method", "HTTP method of the requests")] = "POST"
    url: Annotated[
        str,
        parameter_meta(
            "URL",
            "End of the address `/workflow-http-in/<access key>/<url>` for clients with the HTTP "
            "credential; `{name}` matches one segment",
            max_length=MAX_URL_CHARACTERS,
        ),
    ] = ""
    token: Annotated[
        str,
        parameter_meta(
            "Token",
            "End of the address `/workflow/hooks/<token>`, which needs no login. Use 32 to 128 "
            "random letters, digits, - and _",
            secret=True,
        ),
    ] = ""

    def find_faults(self) -> Iterable[ParameterFault]:
        """Yield missing or invalid addresses and weak tokens."""
        if not self.url.strip("/ ") and not self.token:
            yield ParameterFault("url", "must not be empty unless a token is set")
        if self.token and not _match_token(self.token):
            yield ParameterFault("token", "must have 32 to 128 random letters, digits, - and _")
        if self.url and (reason := _find_url_fault(self.url)):
            yield ParameterFault("url", reason)

    @property
    def parsed_address(self) -> FlowAddress | None:
        """Return the parsed address, if there is one."""
        return parse_address(self.url) if self.url.strip("/ ") else None


class HttpIn(Entry[HttpInParameters]):
    """Starts a flow with a request: `body`, `params`, `header`, `url`, variables.

    `params` is the query.
    """

    name = "httpIn"
    title = "HTTP In"
    description = "Runs the flow when a client calls its address"

    def build_output(self, parameters: HttpInParameters, trigger_input: Any) -> dict[str, Any]:
        """Return the request; fields missing in a test are empty.

        Each variable of the address is in `pathParam` and also at `pathParam.{name}`.
        """
        empty: dict[str, Any] = {
            "body": None,
            "params": {},
            "header": {},
            "url": "",
            "pathParam": {},
        }
        output: dict[str, Any] = {
            **empty,
            **require_map(trigger_input, " with body, params and header"),
        }
        variables = output["pathParam"] if isinstance(output["pathParam"], Mapping) else {}
        return {f"pathParam.{name}": value for name, value in variables.items()} | output


def parse_address(url: str) -> FlowAddress:
    """Parse a valid address."""
    segments, names = [], []
    for segment in split_path(url):
        variable = _match_variable(segment)
        segments.append(_VARIABLE_SHAPE if variable else _normalize_segment(segment))
        names += [variable[1]] if variable else []
    return FlowAddress(tuple(segments), tuple(names))


def list_matching_shapes(path: str) -> list[str]:
    """Return the shapes of all addresses that match a path; empty for a long path."""
    segments = split_path(path)
    if not segments or len(segments) > MAX_ADDRESS_SEGMENTS:
        return []
    return [
        "/".join(parts)
        for parts in product(*((_normalize_segment(part), _VARIABLE_SHAPE) for part in segments))
    ]


def split_path(path: str) -> Sequence[str]:
    """Return the segments of a path, ignoring slashes at both ends."""
    path = path.strip().strip("/")
    return path.split("/") if path else []


def _normalize_segment(segment: str) -> str:
    return quote(unquote(segment), safe="")


def _find_url_fault(url: str) -> str:
    segments = split_path(url)
    names = [found[1] for segment in segments if (found := _match_variable(segment))]
    if len(segments) > MAX_ADDRESS_SEGMENTS:
        return f"must have at most {MAX_ADDRESS_SEGMENTS} segments"
    if any(not segment or segment in {".", ".."} for segment in segments):
        return "must not have empty segments, `.` or `..`"
    plain = [segment for segment in segments if not _match_variable(segment)]
    if any(set(segment) & set("{}?#") or not segment.isprintable() for segment in plain):
        return "must not have { } ? or #, except {name} as a whole segment"
    return "must not repeat a variable" if len(set(names)) < len(names) else ""
