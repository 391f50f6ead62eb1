"""`python -m tests.language [PATH ...]` checks the areas of `rules.toml`, or the given paths."""

import subprocess
import sys
from pathlib import Path

from tests.language.checks import Rules, silence
from tests.language.texts import read_source

GENERATED = ("clients/python/thingway_client/_api/", "console/src/api/generated/")


def main(paths: list[str]) -> int:
    """Print the findings; return 1 when any exists, else 0."""
    rules = Rules.load()
    listed = subprocess.run(
        ["git", "ls-files", "--", *(paths or ["*.md", "*.py", "console/src/**/en.ts"])],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.splitlines()
    files = [
        path
        for path in map(Path, listed)
        if (path.suffix in {".md", ".py"} or path.name == "en.ts")
        and not str(path).startswith(GENERATED)
        and (paths or rules.covers(path))
    ]
    sources = [read_source(path, path.read_text()) for path in files]
    found = {source.path: list(rules.check(source)) for source in sources}
    for finding in rules.check_grammar(sources):
        found[finding.path].append(finding)
    findings = sorted(
        finding for source in sources for finding in silence(source, found[source.path])
    )
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
