"""Generates `_api` and `_sync.py` when the package is built.

`_api` is generated from `openapi.json`, the document that a platform serves at
`/openapi/device.json`. `_sync.py` is `_async.py` without `async` and `await`.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SYNC_REPLACEMENTS = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(.*)\]:", r"Generator[\1, None]:"),
    (r"\bAsync(Thingway|Iterator|Generator|Command|History)\b", r"\1"),
    (r"\basyncio_detailed\b", "sync_detailed"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\basyncio\.Lock\b", "threading.Lock"),
    (r"\bimport asyncio\b", "import threading"),
    (r"\basync_auth_flow\b", "sync_auth_flow"),
    (r"\baread\b", "read"),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\bget_async_httpx_client\b", "get_httpx_client"),
    (r"\baclose\b", "close"),
    (r"\bAwaitable\[(Response\[Any\])\]", r"\1"),
    (r"\blisten\b", "listen_blocking"),
)
"""Pairs of a pattern in `_async.py` and its replacement in `_sync.py`."""


class GenerateCodeHook(BuildHookInterface[Any]):
    """Hook of the build: generates `_api` and `_sync.py` before files are packaged."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write `_api` and `_sync.py` (hatchling also calls this for an editable install)."""
        root = Path(self.root)
        package = root / "thingway_client"
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as config:
            config.write("post_hooks: []\n")
            config.flush()
            subprocess.run(  # noqa: S603
                [
                    *(sys.executable, "-m", "openapi_python_client", "generate", "--overwrite"),
                    *("--path", root / "openapi.json", "--output-path", package / "_api"),
                    *("--meta", "none", "--config", config.name, "--fail-on-warning"),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        text = (package / "_async.py").read_text()
        for pattern, replacement in SYNC_REPLACEMENTS:
            text = re.sub(pattern, replacement, text)
        (package / "_sync.py").write_text(text)
