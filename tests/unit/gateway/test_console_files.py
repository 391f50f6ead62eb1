"""The files of the console that the gateway serves."""

from pathlib import Path

from libs.common.http.static import YEAR_SECONDS
from services.gateway.pages import ConsoleFiles


def _built(directory: Path) -> ConsoleFiles:
    (directory / "assets").mkdir()
    (directory / "index.html").write_text("<!doctype html>")
    (directory / "assets/page-a1.js").write_text("export {};")
    (directory / "sw.js").write_text("const FILES = [];")
    return ConsoleFiles(directory)


def test_browsers_ask_again_for_the_page_and_its_service_worker(tmp_path: Path) -> None:
    """An upgrade is seen at the next visit; files that are named by their content never change."""
    files = _built(tmp_path)
    assert files.page is not None
    assert files.worker is not None
    assert (files.page.max_age, files.worker.max_age) == (0, 0)
    assert files.worker.media_type == "text/javascript"
    assert files.assets["page-a1.js"].max_age == YEAR_SECONDS


def test_the_policy_permits_a_worker_of_this_platform_only(tmp_path: Path) -> None:
    """Nothing is loaded from anywhere else."""
    page = _built(tmp_path).page
    assert page is not None
    policy = page.policy["Content-Security-Policy"]
    assert policy.startswith("default-src 'self'")
    assert "worker-src 'self'" in policy


def test_a_console_that_was_not_built_has_no_files(tmp_path: Path) -> None:
    """The gateway starts without a console."""
    files = ConsoleFiles(tmp_path)
    assert (files.page, files.worker, files.assets) == (None, None, {})
