"""Internal ports between their choice and the start of who listens there."""

import socket
import subprocess
import sys

from deploy.platform import ports

CLAIM = "import sys; from deploy.platform import ports; sys.exit(0 if ports.claim({}) else 7)"


def claims_elsewhere(port: int) -> bool:
    """Whether another process can claim a port."""
    done = subprocess.run([sys.executable, "-c", CLAIM.format(port)], check=False)
    assert done.returncode in (0, 7)
    return done.returncode == 0


def test_a_chosen_port_cannot_be_claimed_by_another_platform() -> None:
    """Although nobody listens there yet; the claim of a process ends with it."""
    port = ports.choose_free()
    assert not claims_elsewhere(port)
    ports._claimed.pop(port).close()
    assert claims_elsewhere(port)
    assert claims_elsewhere(port)


def test_a_port_where_a_stranger_listens_cannot_be_claimed() -> None:
    """Not even by whoever claimed it before; when the stranger has gone, it can be."""
    port = ports.choose_free()
    with socket.create_server((ports.LOOPBACK, port)):
        assert not ports.claim(port)
        assert not claims_elsewhere(port)
    assert claims_elsewhere(port)


def test_a_process_claims_what_it_has_claimed() -> None:
    """As a platform that is started again claims the ports of last time."""
    port = ports.choose_free()
    assert ports.claim(port)
