"""The image's health check: whether the container's service is ready.

An engine runs it every few seconds in each container, so it is a script that imports little.
"""

import os
import socket
import sys


def main() -> int:
    """Print the answer of `/readyz`; return 0 if the service is ready, else 1."""
    port = int(os.environ.get("THINGWAY_PORT", "8000"))
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=4)
        if os.environ.get("THINGWAY_TLS_CERTIFICATE"):
            import ssl  # noqa: PLC0415 - takes longer than the check

            context = ssl._create_unverified_context()  # noqa: S323, SLF001 - loopback only
            connection = context.wrap_socket(connection)
        with connection:
            connection.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            with connection.makefile("rb") as answer:
                head, _, text = answer.read().partition(b"\r\n\r\n")
    except OSError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(text.decode(errors="replace") + "\n")
    return 0 if head.split(b" ", 2)[1:2] == [b"200"] else 1


if __name__ == "__main__":
    sys.exit(main())
