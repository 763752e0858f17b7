"""The page as a browser shows it: nothing is loaded, refused or out of place."""

import html
import http.server
import json
import os
import pathlib
import re
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
    assert "<title>cpt" in shown and shown.count("<script") == 1
    assert shown.count("<svg") == page.read_text().count("<svg")
    # The page's own script has run: it shows the tools that need it.
    assert '<div class="tools" hidden' in page.read_text()
    assert '<div class="tools">' in shown


@pytest.mark.parametrize("width", [400, 1280])
def test_a_picture_of_it_is_no_empty_page(page, tmp_path, width):
    picture = tmp_path / "page.png"
    browse(page.as_uri(), f"--screenshot={picture}", f"--window-size={width},2400")
    assert picture.stat().st_size > 60_000
    # The picture is kept if LONGHAUL_PICTURES names a folder for it.
    kept = os.environ.get("LONGHAUL_PICTURES")
    if kept:
        shutil.copy(picture, pathlib.Path(kept) / f"report_{width}.png")


# This script belongs to the test. The page's security policy would refuse it, so the policy is
# taken out of a copy of the page.
HELP = """
const found = {}, plots = [...document.querySelectorAll("svg.plot")];
const point = (svg, type, share) => {
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent(type, {bubbles: true, pointerType: "mouse", button: 0,
    clientX: box.left + box.width * (62 + share * 558) / 640, clientY: box.top + 50}));
};
const tip = svg => svg.parentElement.querySelector(".tip");
const lines = tip => tip.hidden ? null : [...tip.children].map(e => e.textContent);
const shownSteps = svg => [...svg.querySelectorAll(".axis text[text-anchor=middle]")].map(
  e => parseFloat(e.textContent) * (e.textContent.endsWith("k") ? 1000 : 1));
"""


def ask(page, tmp_path, script, *options):
    """Runs a script on the page and returns what it finds."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    end = "document.body.dataset.found = JSON.stringify(found);"
    copy = tmp_path / "asked.html"
    copy.write_text(text.replace("</body>", f"<script>{HELP}{script}{end}</script></body>"))
    shown = browse(copy.as_uri(), "--dump-dom", *options).stdout.decode()
    return json.loads(html.unescape(re.search(r'data-found="(.*?)"', shown)[1]))


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A page of one run, and a page of two runs."""
    directory = tmp_path_factory.mktemp("pages")
    runs = [made_up_run.write_run(directory / "one", 300),
            made_up_run.write_run(directory / "two with a long name" / "one", 3000)]
    for out, given in (("one.html", runs[:1]), ("two.html", runs)):
        subprocess.run([LONGHAUL, "report", *given, "--out", directory / out], check=True,
                       timeout=60)
    return directory


def test_the_pointer_and_the_keys_show_the_values_of_a_step(pages, tmp_path):
    found = ask(pages / "one.html", tmp_path, """
        point(plots[0], "pointermove", (151 - 1) / 299);
        found.loss = lines(tip(plots[0]));
        found.hair = plots[0].querySelector(".hair").getAttribute("d");
        point(plots[0], "pointerleave", 0);
        found.gone = lines(tip(plots[0]));
        for (const key of ["ArrowLeft", "ArrowLeft"]) {
          plots[2].dispatchEvent(new KeyboardEvent("keydown", {key}));
        }
        found.keys = lines(tip(plots[2]));
        found.memory = (point(plots[6], "pointermove", 0.5), lines(tip(plots[6])));""")
    step, training, validation = found["loss"]
    assert step == "step 151"
    assert abs(float(training.split()[1]) - made_up_run.loss_at(151)) < 1e-4
    assert re.fullmatch(r"validation wiki 2\.\d+, step 150", validation)
    assert found["hair"].startswith("M341.") and found["gone"] is None
    assert found["keys"][0] == "step 299"
    assert found["memory"][1].endswith("5 GB")


def test_the_ledger_fits_a_phone_and_a_lone_point_is_drawn(tmp_path):
    run = made_up_run.write_run(tmp_path / "cpt", 1)
    page = tmp_path / "cpt.html"
    subprocess.run([LONGHAUL, "report", run, "--out", page], check=True, timeout=60)
    found = ask(page, tmp_path, """
        const ledger = [...document.querySelectorAll(".scroll")].find(
          e => e.textContent.includes("what it is"));
        found.ledger = [ledger.scrollWidth, ledger.clientWidth];
        found.wide = [document.documentElement.scrollWidth, innerWidth];
        found.points = plots.map(p => p.querySelector(".line").getBBox().width);""",
                "--window-size=400,2400")
    assert found["ledger"][0] <= found["ledger"][1] < 400
    assert found["wide"][0] <= found["wide"][1] == 400
    assert len(found["points"]) > 4 and min(found["points"]) > 4


@pytest.mark.parametrize("width", [400, 1280])
def test_a_map_of_experts_shows_the_load_under_the_pointer(tmp_path, width):
    run = made_up_run.write_run(tmp_path / "cpt", 100, experts=(3, 8))
    page = tmp_path / "experts.html"
    subprocess.run([LONGHAUL, "report", run, "--out", page], check=True, timeout=60)
    found = ask(page, tmp_path, """
        const map = document.querySelectorAll("svg.heat")[2];
        const box = map.querySelector(".frame").getBoundingClientRect();
        const at = (x, y) => { map.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
          clientX: box.left + x * box.width, clientY: box.top + y * box.height}));
          return tip(map).hidden ? null : tip(map).textContent; };
        found.box = [at(0.99, 2.5 / 8), at(0.01, 0.01), at(1.1, 0.5)];
        const room = map.getBoundingClientRect();
        found.map = [room.left, room.right, room.height];
        found.wide = [document.documentElement.scrollWidth, innerWidth];""",
                f"--window-size={width},2400")
    # At step 100 one of eight experts has 200 tokens of 900; at step 1 it has 101 of 801.
    assert found["box"] == ["expert 2 from step 100: 1.78 of an even share",
                            "expert 0 from step 1: 1 of an even share", None]
    assert 0 <= found["map"][0] < found["map"][1] <= width and 60 < found["map"][2] < 300
    assert found["wide"][0] <= found["wide"][1] == width


def test_of_a_column_of_steps_the_box_says_mean_and_extremes(pages, tmp_path):
    found = ask(pages / "two.html", tmp_path,
                'point(plots[0], "pointermove", 0.5); found.box = lines(tip(plots[0]));')
    [steps, values] = found["box"]  # of the longer run: the other has ended
    assert values.startswith("two with a long name/one ")
    first, last = (int(step.replace(",", ""))
                   for step in re.fullmatch(r"steps ([\d,]+) to ([\d,]+)", steps).groups())
    assert 0 < last - first <= 3
    losses = [made_up_run.loss_at(step) for step in range(1, 3001)]
    column = losses[first - 1:last]
    mean, low, high = map(float,
                          re.search(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)", values).groups())
    assert abs(mean - sum(column) / len(column)) < 1e-3
    assert abs(low - min(column)) < 1e-3 and abs(high - max(column)) < 1e-3
    assert low < mean < high


def test_a_curve_without_any_value_has_none_in_the_box(pages, tmp_path):
    run = made_up_run.write_run(tmp_path / "nan", 1500)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        if "grad_norm" in line:
            line["loss"] = None
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = tmp_path / "nan.html"
    subprocess.run([LONGHAUL, "report", run, "--out", page], check=True, timeout=60)
    found = ask(page, tmp_path,
                'point(plots[0], "pointermove", 0.5); found.box = lines(tip(plots[0]));')
    assert len(found["box"]) == 2 and found["box"][0] == "step 750"
    assert found["box"][1].startswith("validation wiki")


def test_a_drag_shows_the_same_steps_in_all_plots_and_a_double_click_all(pages, tmp_path):
    found = ask(pages / "one.html", tmp_path, """
        const drag = (from, to) => { point(plots[2], "pointerdown", from);
          point(plots[2], "pointermove", to); point(plots[2], "pointerup", to); };
        const button = document.querySelector(".tools button");
        found.before = plots.map(shownSteps);
        drag(0.6, 0.4);
        found.zoomed = plots.map(shownSteps);
        found.labels = [...plots[0].querySelectorAll(".axis text[text-anchor=end]")]
          .map(e => e.textContent);
        found.enabled = !button.disabled;
        plots[0].dispatchEvent(new MouseEvent("dblclick"));
        found.after = plots.map(shownSteps);
        drag(0.1, 0.2); button.click();
        found.reset = [plots.map(shownSteps), button.disabled];""")
    assert found["before"] == found["after"] == found["reset"][0]
    assert found["enabled"] and found["reset"][1]
    for steps in found["zoomed"]:
        assert len(steps) >= 3 and 119 <= min(steps) and max(steps) <= 181, steps
    # This plot of the loss has a scale of its own: the loss lies between 2.0 and 2.8.
    assert all(1.9 <= float(label) <= 3 for label in found["labels"] if label != "step")


def test_the_slider_smooths_every_curve_and_keeps_it_paler(pages, tmp_path):
    found = ask(pages / "one.html", tmp_path, """
        const slider = document.querySelector(".tools input");
        const set = value => { slider.value = value; slider.dispatchEvent(new Event("input")); };
        const count = what => document.querySelectorAll(what).length;
        found.lines = count("path.line");
        set(5);
        found.smooth = [count("path.line"), count("path.line.pale"),
                        document.querySelector(".tools output").textContent];
        point(plots[2], "pointermove", 0.7);
        found.box = lines(tip(plots[2]));
        set(0);
        found.off = [count("path.line"), count("path.line.pale")];""")
    lines, (both, pale, said) = found["lines"], found["smooth"]
    assert pale == lines - 2  # validation is drawn twice: its few values stay as they are
    assert both == lines + pale and said == "over 50 steps"
    smooth = float(re.search(r"smoothed ([\d.]+)", found["box"][1])[1])
    assert abs(smooth - 1.0) < 0.01  # the norm is 1 and a wave of 0.2
    assert found["off"] == [lines, 0]


@pytest.mark.parametrize("name", ["one.html", "two.html"])
def test_on_a_phone_nothing_is_cut_or_parted_from_its_swatch(pages, tmp_path, name):
    found = ask(pages / name, tmp_path, """
        found.wide = [document.documentElement.scrollWidth, innerWidth];
        found.swatches = document.querySelectorAll(".swatch, .legend .key, table .key").length;
        found.apart = [];
        for (const swatch of document.querySelectorAll(".swatch, .legend .key, table .key")) {
          const words = document.createRange();
          words.selectNode(swatch.nextSibling);
          const [first] = words.getClientRects(), box = swatch.getBoundingClientRect();
          if (box.bottom > first.bottom || box.top < first.top || box.right > first.left) {
            found.apart.push(swatch.nextSibling.textContent);
          }
        }
        found.cut = [];
        for (const cell of document.querySelectorAll("td, th, .tile, .legend, h3")) {
          if (cell.scrollWidth > cell.clientWidth + 1) found.cut.push(cell.textContent);
        }""", "--window-size=400,2400")
    assert found["wide"][0] <= found["wide"][1] == 400, found
    assert found["swatches"] >= 3
    assert found["apart"] == [] and found["cut"] == []
