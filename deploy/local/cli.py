"""The `thingway` command: its parser, built from the table in `commands.toml`."""

import argparse
import asyncio
import inspect
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from deploy.local.options import add_option
from deploy.platform.errors import Exit, InputRejected, LauncherError
from libs.common.errors import ThingwayError

_COMMAND_TABLE = tomllib.loads(Path(__file__).with_name("commands.toml").read_text())


class Command(NamedTuple):
    """A command of `thingway`."""

    words: str
    text: str
    run: str
    """`module:function` in this package, imported when the command runs.

    The function gets the parsed arguments. It returns an exit code, or a coroutine that returns an
    exit code or None.
    """
    options: list[str | dict[str, Any]]
    """Options, and names of shared options."""


COMMANDS = tuple(Command(words, **row) for words, row in _COMMAND_TABLE["commands"].items())
HELP_BY_GROUP: dict[str, str] = _COMMAND_TABLE["groups"]
_UNGROUPED_COMMANDS = {
    each.words for each in COMMANDS if each.words.partition(" ")[0] not in HELP_BY_GROUP
}
"""Commands without a group."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; print its faults to stderr, one a line, and return the exit code."""
    options = create_parser().parse_args(
        _join_words(sys.argv[1:] if arguments is None else arguments)
    )
    try:
        done = resolve_name(f"{__package__}.{options.run}")(options)
        return int((asyncio.run(done) if inspect.iscoroutine(done) else done) or Exit.OK)
    except InputRejected as error:
        return _print_faults(error.exit_code, *error.faults)
    except LauncherError as error:
        return _print_faults(error.exit_code, error)
    except ThingwayError as error:
        return _print_faults(Exit.FAILED, error.text)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return int(Exit.FAILED)


def _print_faults(code: Exit, *faults: object) -> int:
    for fault in faults:
        print(f"thingway: {fault}", file=sys.stderr)
    return int(code)


def _join_words(arguments: Sequence[str]) -> list[str]:
    """Join the two words of a command whose first word is a command as well."""
    both = " ".join(arguments[:2])
    return [both, *arguments[2:]] if both in _UNGROUPED_COMMANDS else list(arguments)


def create_parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    top = argparse.ArgumentParser(
        prog="thingway", description="Thingway on one machine: run the platform and work with it."
    )
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    subparsers = {"": commands}
    for command in COMMANDS:
        group, _, word = ("", "", command.words)
        if command.words not in _UNGROUPED_COMMANDS:
            group, _, word = command.words.rpartition(" ")
        if group not in subparsers:
            command_parser = commands.add_parser(
                group, help=HELP_BY_GROUP[group], description=_sentence(HELP_BY_GROUP[group])
            )
            subparsers[group] = command_parser.add_subparsers(
                title="commands", metavar="COMMAND", required=True
            )
        parser = subparsers[group].add_parser(
            word, help=command.text, description=_sentence(command.text)
        )
        parser.set_defaults(run=command.run)
        _add_options(parser, command.options)
    return top


def _add_options(parser: argparse.ArgumentParser, options: list[str | dict[str, Any]]) -> None:
    for option in options:
        if isinstance(option, str):
            _add_options(parser, _COMMAND_TABLE["shared"][option])
        else:
            add_option(parser, **option)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
