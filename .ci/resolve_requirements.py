"""Check that pip can install every requirement from wheels, as the image does.

The image's Python version and pip options come from `deploy/docker/Dockerfile`. Nothing is
installed: pip resolves all requirements for x86-64 and arm64 and fails for one without a wheel.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROCESSORS = "x86_64", "aarch64"
GLIBC_TAGS = "2014", "_2_28", "_2_34", "_2_39"
"""Suffixes of supported `manylinux` tags; Debian 13 in the image has glibc 2.41."""


def image_options() -> list[str]:
    """Return the options that the image gives to pip, and its Python version."""
    dockerfile = (ROOT / "deploy/docker/Dockerfile").read_text().replace("\\\n", "")
    commands = re.findall(r"pip install (.*) -r", dockerfile)
    [options] = {re.sub(r"--no-cache-dir|\s+", " ", command).strip() for command in commands}
    [version] = set(re.findall(r"^FROM python:([\d.]+)-slim", dockerfile, re.MULTILINE))
    return [*options.split(), "--python-version", version]


def resolve(processor: str) -> subprocess.Popen[bytes]:
    """Start pip, which resolves the requirements for a processor."""
    platforms = [f"--platform=manylinux{tag}_{processor}" for tag in GLIBC_TAGS]
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-qq"]
    target = ["--target", "unused", *platforms]
    files = [f"--requirement={file}" for file in ROOT.glob("requirements*.txt")]
    return subprocess.Popen([*pip, *image_options(), *target, *files])


def main() -> int:
    """Resolve for each processor; return 1 if pip fails for any processor."""
    resolving = {processor: resolve(processor) for processor in PROCESSORS}
    failed = [processor for processor, pip in resolving.items() if pip.wait() != 0]
    for processor in failed:
        print(f"the requirements cannot be installed from wheels on {processor}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
