"""The image's health check: whether the container's service is ready."""

import http.client
import os
import ssl
import sys

_TIMEOUT_SECONDS = 4
_OK = 200


def main() -> int:
    """Request `/readyz` on the service's port; return 0 if ready, else print why."""
    port = int(os.environ.get("THINGWAY_PORT", "8000"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    if os.environ.get("THINGWAY_TLS_CERTIFICATE"):
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - loopback only
        connection = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=_TIMEOUT_SECONDS, context=context
        )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
    except OSError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    finally:
        connection.close()
    sys.stdout.write(text + "\n")
    return 0 if answer.status == _OK else 1


if __name__ == "__main__":
    sys.exit(main())
