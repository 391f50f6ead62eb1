"""Claims of internal ports between their choice and the start of their servers."""

import socket
import subprocess
import sys

from deploy.platform import ports

CLAIM = "import sys; from deploy.platform import ports; sys.exit(0 if ports.claim({}) else 7)"


def can_claim_elsewhere(port: int) -> bool:
    """Return whether another process can claim a port."""
    done = subprocess.run([sys.executable, "-c", CLAIM.format(port)], check=False)
    assert done.returncode in (0, 7)
    return done.returncode == 0


def test_a_chosen_port_cannot_be_claimed_by_another_platform() -> None:
    """No server listens there yet; the claim of a process ends with the process."""
    port = ports.claim_random()
    assert not can_claim_elsewhere(port)
    ports._claim_marker_by_port.pop(port).close()
    assert can_claim_elsewhere(port)
    assert can_claim_elsewhere(port)


def test_a_port_of_another_server_cannot_be_claimed() -> None:
    """Not even by its previous claimant; when the server has stopped, it can."""
    port = ports.claim_random()
    with socket.create_server((ports.LOOPBACK, port)):
        assert not ports.claim(port)
        assert not can_claim_elsewhere(port)
    assert can_claim_elsewhere(port)


def test_a_process_can_claim_its_port_again() -> None:
    """A restarted platform claims its previous ports."""
    port = ports.claim_random()
    assert ports.claim(port)
