"""Compose's first job: who is handed which secret."""

from pathlib import Path

from deploy.docker.entry import read_variables
from deploy.docker.jobs import PLAIN
from deploy.platform import console
from deploy.platform import state as states
from deploy.platform.certificates import DEVICES
from deploy.platform.shares import bootstrap_state, prepare
from deploy.platform.state import State, User


def environments(state: State) -> dict[str, dict[str, str]]:
    """The env file of each service."""
    return {
        share.part: read_variables(share.content)
        for share in prepare(state, PLAIN)
        if share.name == "env"
    }


def test_auth_and_the_bootstrap_job_know_the_same_console_client() -> None:
    """And nobody else does."""
    state = State()

    given = environments(state)

    shown = console.client(bootstrap_state(state, State(), PLAIN))
    assert shown == (
        given["auth"]["THINGWAY_CONSOLE_CLIENT_ID"],
        given["auth"]["THINGWAY_CONSOLE_CLIENT_SECRET"],
    )
    owners = [name for name, one in given.items() if shown[1] in one.values()]
    assert owners == ["auth"]


def test_a_second_start_keeps_what_the_bootstrap_job_has_done(tmp_path: Path) -> None:
    """It gets a client that was set since, and keeps its user."""
    state = State()
    done = bootstrap_state(state, State(), PLAIN)
    done.user = User("a@b.de", "Passw0rd")
    states.save(tmp_path, done)
    state.secrets |= {console.CLIENT_ID: "iab", console.CLIENT_SECRET: "another"}

    again = bootstrap_state(state, states.load(tmp_path), PLAIN)

    assert again.user == User("a@b.de", "Passw0rd")
    assert console.client(again) == ("iab", "another")
    assert set(again.secrets) == {
        "nats.admin",
        console.CLIENT_ID,
        console.CLIENT_SECRET,
        DEVICES,
    }
