"""The site of the documentation as a browser shows it: every page opens, and fits its window."""

import http.server
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from programs import SOURCE  # noqa: E402
from test_report_in_browser import browse  # noqa: E402

PAGES = ["index.html", "tutorial.html", "running.html", "layouts.html", "migrating.html", "benchmarks.html"]
# A wide table scrolls in its own box; the page itself does not.
WIDTH = "<script>addEventListener('load',()=>{document.title=document.documentElement.scrollWidth})</script>"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    python = SOURCE / ".venv-docs/bin/python3"
    if not python.exists():
        pytest.skip("`make docs` makes .venv-docs")
    out = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([python, SOURCE / "tools/docs_site.py", out], check=True, timeout=120)
    for page in PAGES:
        text = (out / page).read_text()
        (out / page).write_text(text.replace("</head>", WIDTH + "</head>", 1))
    return out


@pytest.fixture(scope="module")
def address(site):
    asked = []

    class Server(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=site)

        def log_message(self, form, *arguments):
            asked.append((arguments[0], arguments[1] if len(arguments) > 1 else ""))

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_opens_whole_and_fits_its_window(address, tmp_path, page, width):
    base, asked = address
    picture = tmp_path / "page.png"
    done = browse(f"{base}/{page}", "--dump-dom", f"--window-size={width},1600")
    shown = done.stdout.decode()
    assert f"<title>{width}</title>" in shown, shown[:400]
    assert not [request for request in asked if request[1] == "404"], asked
    browse(f"{base}/{page}", f"--screenshot={picture}", f"--window-size={width},1600")
    assert picture.stat().st_size > 20_000
    kept = os.environ.get("LONGHAUL_PICTURES")  # where a person can look at it
    if kept:
        shutil.copy(picture, pathlib.Path(kept) / f"site_{page}_{width}.png")


def test_the_search_finds_a_setting(site):
    index = (site / "search/search_index.json").read_text()
    assert "peer_memory_every" in index and "checkpoints.html" in index


def test_nothing_is_loaded_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert "unpkg.com" not in text and "fonts.googleapis" not in text, page
