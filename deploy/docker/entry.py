"""The image's entrypoint: take the secrets from a file, then become the command.

`python -m deploy.docker.entry COMMAND …` reads `NAME=value` lines from the file that
`THINGWAY_ENV_FILE` names (default `/secrets/env`; without the file nothing is read) and
replaces itself by COMMAND. What the environment says already stays as it is.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

ENV_FILE = "THINGWAY_ENV_FILE"
DEFAULT_FILE = "/secrets/env"


def read_variables(text: str) -> dict[str, str]:
    """The variables of an env file: `NAME=value` lines, taken literally."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name: value for name, _, value in pairs}


def complete(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command. Raises OSError for a file that cannot be read."""
    file = Path(environ.get(ENV_FILE, DEFAULT_FILE))
    try:
        text = file.read_text()
    except FileNotFoundError:
        text = ""
    return {**read_variables(text), **environ}


def main(arguments: list[str]) -> None:
    """Become the command; one line on stderr when that cannot be."""
    if not arguments:
        sys.exit("usage: python -m deploy.docker.entry COMMAND …")
    try:
        environment = complete(os.environ)
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - no shell is wanted
    except OSError as error:
        sys.exit(f"entry: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
