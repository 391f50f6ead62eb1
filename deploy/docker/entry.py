"""The image's entrypoint: load secrets from a file, then execute the command.

`python -m deploy.docker.entry COMMAND …` reads `NAME=value` lines from the file that
`THINGWAY_ENV_FILE` names (default `/secrets/env`; a missing file is ignored) and replaces itself
with COMMAND. Variables that are already set keep their values.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

ENV_FILE = "THINGWAY_ENV_FILE"
DEFAULT_FILE = "/secrets/env"


def read_variables(text: str) -> dict[str, str]:
    """Return the variables in an env file: `NAME=value` lines without quoting."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def add_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command; raise `OSError` for an unreadable file."""
    file = Path(environ.get(ENV_FILE, DEFAULT_FILE))
    try:
        text = file.read_text()
    except FileNotFoundError:
        text = ""
    return {**read_variables(text), **environ}


def main(arguments: list[str]) -> None:
    """Execute the command; print one line to stderr if that fails."""
    if not arguments:
        sys.exit("usage: python -m deploy.docker.entry COMMAND …")
    try:
        environment = add_secrets(os.environ)
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"entry: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
