"""The open TSL (temporary)."""
from typing import Any
import msgspec
from libs.common.tsl.compiled import CompiledTsl
from libs.common.tsl.document import TslDocument
from libs.common.tsl.interface import Report
def generic_tsl() -> Any:
    return CompiledTsl(TslDocument(version="v1.0", properties=[], events=[], services=[]))
