"""The page as a browser shows it: nothing is loaded, refused or out of place."""

import http.server
import os
import pathlib
import shutil
import subprocess
import threading

import pytest

import made_up_run

LONGHAUL = os.path.join(os.environ["LONGHAUL_BIN_DIR"], "longhaul")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


def browse(url, *options):
    """Runs the browser with its own empty profile; its log goes to standard error."""
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--enable-logging=stderr", "--v=0", *options, url],
        capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    assert BROWSER, "install Debian's chromium-headless-shell for this test"
    directory = tmp_path_factory.mktemp("page")
    run = made_up_run.write_run(directory / "cpt", 2000, hostile="<script>document.title=1</script>")
    subprocess.run([LONGHAUL, "report", run, "--out", directory / "r.html"], check=True, timeout=60)
    return directory / "r.html"


def test_the_browser_reads_what_was_written_and_asks_for_nothing_else(page):
    asked = []

    class Server(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=page.parent)

        def log_message(self, form, *arguments):
            asked.append(arguments[0])

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = browse(f"http://127.0.0.1:{server.server_port}/r.html", "--dump-dom")
    finally:
        server.shutdown()
        server.server_close()
    assert [a for a in asked if "favicon" not in a] == ["GET /r.html HTTP/1.1"]
    assert b"CONSOLE" not in done.stderr, done.stderr
    shown = done.stdout.decode()
    assert "<title>cpt" in shown and "<script" not in shown
    assert shown.count("<svg") == page.read_text().count("<svg")


@pytest.mark.parametrize("width", [400, 1280])
def test_a_picture_of_it_is_no_empty_page(page, tmp_path, width):
    picture = tmp_path / "page.png"
    browse(page.as_uri(), f"--screenshot={picture}", f"--window-size={width},2400")
    assert picture.stat().st_size > 60_000
    # Keep it where a person can look at it.
    kept = os.environ.get("LONGHAUL_PICTURES")
    if kept:
        shutil.copy(picture, pathlib.Path(kept) / f"report_{width}.png")
