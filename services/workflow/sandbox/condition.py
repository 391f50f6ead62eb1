"""One condition in CEL, in the process that is there for it alone."""

import json

from services.workflow.expressions.cel import CelFailed, evaluate


def answer(request: bytes) -> bytes:
    """`R` and the value as JSON, or `E` and the reason."""
    text, variables = json.loads(request)
    try:
        return b"R" + json.dumps(evaluate(text, variables), default=str).encode()
    except CelFailed as error:
        return b"E" + str(error).encode(errors="replace")
    except (MemoryError, RecursionError):
        return b"Eneeds too much memory"
