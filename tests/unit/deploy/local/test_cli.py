"""The command line: arguments, and messages for invalid ones."""

import json
from pathlib import Path
from pkgutil import resolve_name

import pytest

from deploy.local import products
from deploy.local.cli import COMMANDS, Command, create_parser, main
from deploy.local.options import read_ports
from deploy.platform.errors import CommandError

TSL = {"version": "v1.0", "properties": [], "events": [], "services": []}


def write(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_up_has_the_documented_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ports 8080, 1883 and 4222 on loopback, data in `./.data`."""
    monkeypatch.delenv("THINGWAY_DATA", raising=False)
    monkeypatch.delenv("THINGWAY_ADMIN_EMAIL", raising=False)
    monkeypatch.chdir(tmp_path)
    given = create_parser().parse_args(["up"])
    assert read_ports(given) == {
        "port": 8080,
        "mqtt_port": 1883,
        "nats_port": 4222,
        "websocket_port": None,
        "certificate_port": None,
        "certificate_nats_port": None,
    }
    assert (given.host, given.workers, given.data) == ("127.0.0.1", 1, tmp_path / ".data")
    assert given.admin_email == "admin@thingway.local"


def test_the_data_directory_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`THINGWAY_DATA` is the default of `--data` for every command."""
    monkeypatch.setenv("THINGWAY_DATA", str(tmp_path))
    assert create_parser().parse_args(["doctor"]).data == tmp_path


@pytest.mark.parametrize("words", [["backup", "-"], ["restore", "-"], ["migrate"]])
def test_addresses_of_stores_come_from_the_environment(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option overrides a variable; passwords need no arguments."""
    for store in ("MONGO", "NATS", "REDIS"):
        monkeypatch.setenv(f"THINGWAY_{store}_URL", f"{store}://a:b@c")
    given = create_parser().parse_args([*words, "--nats-url", "tls://d"])
    assert (given.mongo_url, given.nats_url, given.redis_url) == (
        "MONGO://a:b@c",
        "tls://d",
        "REDIS://a:b@c",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--port", "0"],
        ["up", "--port", "65536"],
        ["up", "--workers", "-1"],
        ["up", "--host", ""],
        ["simulate", "--devices", "2001", "--rate", "1"],
        ["simulate", "--devices", "1", "--rate", "0"],
        ["simulate", "--devices", "1", "--rate", "nan"],
        ["app", "delete", "abc"],
        ["tenant", "limits", "acme", "teapots=5"],
        ["tenant", "limits", "acme", "requests=0"],
        ["tenant", "limits", "acme", "requests"],
        [],
    ],
)
def test_invalid_arguments_are_rejected(arguments: list[str]) -> None:
    """The exit code is 2, and nothing is done."""
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["up"],
        ["simulate"],
        ["app"],
        ["app", "create"],
        ["user", "list"],
        ["user", "reset-password"],
        ["product", "import"],
        ["tenant", "limits"],
        ["doctor"],
    ],
)
def test_every_command_has_help(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` explains the command."""
    with pytest.raises(SystemExit) as raised:
        main([*arguments, "--help"])
    assert raised.value.code == 0
    assert "usage: thingway" in capsys.readouterr().out


def test_limits_have_camel_case_or_snake_case_names() -> None:
    """A number sets a limit; `default` resets it."""
    words = ["tenant", "limits", "acme", "each_requests=50", "eachPolls=2", "polls=default"]
    given = create_parser().parse_args([*words, "--json"])
    assert (given.name, given.json) == ("acme", True)
    assert given.changes == [("eachRequests", 50), ("eachPolls", 2), ("polls", None)]


def test_import_requires_a_running_platform(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the exit code is 1, with one line of explanation."""
    file = write(tmp_path / "em300.json", TSL)
    assert main(["product", "import", str(file), "--data", str(tmp_path)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_remote_options_must_be_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A URL without credentials is an error."""
    file = write(tmp_path / "em300.json", TSL)
    assert main(["product", "import", str(file), "--url", "http://127.0.0.1:1"]) == 1
    assert "--client-secret" in capsys.readouterr().err


def test_a_bare_tsl_document_becomes_a_product(tmp_path: Path) -> None:
    """The model is the file name in capitals."""
    model, body = products.read_product(write(tmp_path / "em300_th.json", TSL), None)
    assert model == "EM300_TH"
    assert body["tsl"] == TSL


def test_a_product_file_contains_its_model(tmp_path: Path) -> None:
    """The body is sent unchanged, except for the model, which is in the URL."""
    product = {"model": "X1", "name": "X", "snPrefixes": ["X"], "deviceType": "COMMON", "tsl": TSL}
    model, body = products.read_product(write(tmp_path / "file.json", product), None)
    assert model == "X1"
    assert body == {key: value for key, value in product.items() if key != "model"}


@pytest.mark.parametrize("content", ["{", "[]", '{"name": "x"}'])
def test_a_file_without_a_product_is_rejected(tmp_path: Path, content: str) -> None:
    """The message names the file."""
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(CommandError, match=str(file)):
        products.read_product(file, None)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.words)
def test_every_command_has_its_function(command: Command) -> None:
    """The table contains the function's name, which is resolved at run time."""
    assert callable(resolve_name(f"deploy.local.{command.run}"))
