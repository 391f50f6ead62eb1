"""The image's entrypoint: load secrets from a file, then run the command.

`python -m deploy.docker.entry COMMAND …` reads `NAME=value` lines from the file that
`THINGWAY_ENV_FILE` names (default `/secrets/env`; a missing file is ignored) and becomes COMMAND.
Variables that are already set keep their values.

A container's first process ignores SIGTERM without a handler. So a command `python -m MODULE` runs
in this process, which ends with code 143 on SIGTERM until the module handles the signal itself.
"""

import os
import runpy
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

ENV_FILE_VARIABLE = "THINGWAY_ENV_FILE"
DEFAULT_ENV_FILE = "/secrets/env"


def read_variables(text: str) -> dict[str, str]:
    """Return the variables in an env file: `NAME=value` lines without quoting."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def add_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` and the variables in the env file; may raise `OSError`."""
    file = Path(environ.get(ENV_FILE_VARIABLE, DEFAULT_ENV_FILE))
    try:
        text = file.read_text()
    except FileNotFoundError:
        text = ""
    return {**read_variables(text), **environ}


def main(arguments: list[str]) -> None:
    """Run the command; print one line to stderr if it cannot start."""
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    try:
        os.environ.update(add_secrets(os.environ))
        match arguments:
            case []:
                sys.exit("usage: python -m deploy.docker.entry COMMAND …")
            case ["python", "-m", module, *options]:
                sys.argv[1:] = options
            case [program, *_]:
                os.execvp(program, arguments)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"entry: {error}")
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
