"""`longhaul watch` and `longhaul report` on run directories that are made up."""

import base64
import calendar
import csv
import errno
import hashlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import fcntl
import termios
import time
import xml.etree.ElementTree

import html5lib
import pyte
import pytest

import made_up_run

LONGHAUL = os.path.join(os.environ["LONGHAUL_BIN_DIR"], "longhaul")
# Text that a terminal or a browser would obey: a title, a colour, mark-up, an entity, and a turn of
# the direction of text.
HOSTILE = "\x1b]0;owned\x07\x1b[31m<script>alert(1)</script>\"'&amp;\u202e"


def longhaul(*arguments, code=0, **options):
    done = subprocess.run([LONGHAUL, *map(str, arguments)], capture_output=True, text=True,
                          timeout=60, **options)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def snapshot(directory):
    """Every file with its content and times."""
    return {p: (p.stat().st_mtime_ns, hashlib.sha256(p.read_bytes()).hexdigest())
            for p in sorted(pathlib.Path(directory).rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_up_run.write_run(tmp_path_factory.mktemp("runs") / "cpt", 300)


# report

def parse_page(path):
    """Parses the page strictly: any error in the HTML raises."""
    text = path.read_text()
    html5lib.HTMLParser(strict=True).parse(text)
    return text


def take_script(text):
    """Returns the page without its one script, and the script: the policy names its hash."""
    [script] = re.findall("<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text, f"kReportScriptHash is to be sha256-{digest}"
    return text.replace(f"<script>{script}</script>", ""), script


def test_the_page_is_valid_and_alone(run, tmp_path):
    longhaul("report", run, "--out", tmp_path / "r.html")
    text, script = take_script(parse_page(tmp_path / "r.html"))
    assert not re.search(r"\b(eval|Function|fetch|XMLHttpRequest|import|innerHTML)\b|https?:|</",
                         script)
    # No other element of the page loads or runs anything.
    assert not re.search(r"<(script|link|img|iframe|object|embed|base|form)\b", text)
    assert not re.search(r"\bon\w+\s*=|javascript:|url\(|@import|https?://", text)
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    assert len(drawings) >= 8
    for drawing in drawings:
        xml.etree.ElementTree.fromstring(drawing)
    for heading in ("Loss", "Gradient norm", "Learning rate", "Throughput", "Memory",
                    "Goodput ledger", "Checkpoints", "Events", "Configuration"):
        assert f">{heading}" in text, heading
    assert text.count('class="mark restarted"') == 6  # one restart in each of six plots
    assert text.count('class="mark bad"') == 6
    assert "nan" not in re.sub(r"<style>.*?</style>", "", text, flags=re.S).lower()


def test_the_loads_of_experts_are_maps_in_a_valid_page(tmp_path):
    directory = made_up_run.write_run(tmp_path / "cpt", 300, experts=(40, 8))
    longhaul("report", directory, "--out", tmp_path / "r.html")
    text, _ = take_script(parse_page(tmp_path / "r.html"))
    maps = re.findall(r'<svg class="heat".*?</svg>', text, re.S)
    assert len(maps) == 16 and "16 of 40 layers are shown" in text
    for one in maps:
        drawing = xml.etree.ElementTree.fromstring(one)
        columns = len(drawing.attrib["data-x"].split())
        assert columns == 31 and len(drawing.attrib["data-percent"].split()) == 31 * 8
    assert "Experts in use" in text and "Entropy of the router" in text
    shown = longhaul("watch", directory, "--once").stdout
    assert "50.0% in use where least" in shown and "expert_loads" not in shown
    assert json.loads(longhaul("watch", directory, "--once", "--json").stdout)["expert_busiest"] == 2.0


OLD_AND_NEW = """[run]
dir = "cpt"
steps = 60
[model]
config = "m"
[data]
seq_len = 64
train = [{ path = "n" }]
validation = [{ name = "wiki", path = "w", stop_above = 0.05 }, { name = "news", path = "n-val" }]
[batch]
global_size = 8
[optimizer]
lr = 1e-3
"""


def test_what_a_run_forgets_is_plotted_beside_what_it_learns(tmp_path):
    directory = made_up_run.write_run(tmp_path / "cpt", 60, config=OLD_AND_NEW)
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    lines = [line for line in lines if "validation" not in line]
    for step, old, new in ((0, 1.5, 4.0), (30, 1.25, 3.5), (60, 1.625, 2.75)):
        for name, loss in (("wiki", old), ("news", new)):
            lines.append(json.dumps({"step": step, "attempt": 2, "validation": name, "loss": loss,
                                     "perplexity": 1.0, "seconds": 1.0, "time": time.time()}))
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    longhaul("report", directory, "--out", tmp_path / "r.html")
    text = parse_page(tmp_path / "r.html")
    [card] = re.findall(r'<section class="card"><h3>Validation since its start.*?</section>', text)
    assert re.findall("<p>(.*?)</p>", card) == [
        "wiki (old) +0.1250 since step 0, stops above +0.05", "news -1.2500 since step 0"]
    assert ">wiki (old)</span>" in card and ">news</span>" in card
    titles = re.findall("<title>(.*?)</title>", card)
    assert len(titles) == 6 and any("-0.25" in title for title in titles), titles
    sets = json.loads(longhaul("report", directory, "--json").stdout)["validation_sets"]
    assert [(s["name"], s["old"], s["change"]) for s in sets] == [
        ("wiki", True, 0.125), ("news", False, -1.25)]
    assert (sets[0]["first_step"], sets[0]["step"], sets[0]["loss"]) == (0, 60, 1.625)


def test_a_run_that_was_validated_once_has_nothing_to_compare(tmp_path):
    directory = made_up_run.write_run(tmp_path / "cpt", 5)
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    first = next(line for line in lines if "validation" in line)
    rest = [line for line in lines if "validation" not in line]
    (directory / "metrics.jsonl").write_text("\n".join([*rest, first]) + "\n")
    longhaul("report", directory, "--out", tmp_path / "r.html")
    assert "since its start" not in parse_page(tmp_path / "r.html")


def test_hostile_text_is_shown_as_text(tmp_path):
    bad = made_up_run.write_run(tmp_path / "cpt<b>", 60, hostile=HOSTILE,
                                config=f"[run]\n# {HOSTILE}\n",
                                status=made_up_run.status(cause=HOSTILE, host=HOSTILE))
    longhaul("report", bad, "--out", tmp_path / "r.html")
    text, _ = take_script(parse_page(tmp_path / "r.html"))
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "&lt;script&gt;" in text
    screen = longhaul("watch", bad, "--once").stdout
    assert "\x1b" not in screen and "\x07" not in screen and "\u202e" not in screen
    assert "<script>" in screen


def test_figures_and_ledger_add_up(run):
    report = json.loads(longhaul("report", run, "--json").stdout)
    ledger = report["ledger"]
    assert ledger["starts"] == 2 and ledger["steps"] == 300 and ledger["steps_redone"] == 6
    seconds = ledger["by_class"]
    assert abs(sum(seconds.values()) - ledger["seconds"]) < 1e-6
    assert abs(seconds["compute"] - 300 * 0.49) < 0.01
    assert abs(seconds["data"] - 300 * 0.01) < 0.01
    assert abs(seconds["redone"] - 6 * 0.5) < 0.01
    assert abs(seconds["restart"] - 9.0) < 0.01
    assert abs(seconds["validation"] - 10.0) < 0.01
    assert abs(seconds["save"] - 2.5) < 0.01
    assert abs(ledger["goodput"] - seconds["compute"] / ledger["seconds"]) < 1e-9
    assert report["state"] == "done" and report["last_step"] == 300


def test_a_run_is_held_against_another_and_against_golden_losses(run, tmp_path):
    longhaul("report", run, "--against", run, "--from-step", 1, "--throughput-rtol", 0)
    golden = tmp_path / "golden_steploss.txt"
    losses = [made_up_run.loss_at(step) for step in range(1, 301)]
    golden.write_text("".join(f"{loss}\n" for loss in losses))
    longhaul("report", run, "--against", golden, "--from-step", 1, "--rtol", 1e-6)
    losses[249] *= 1.2
    golden.write_text("".join(f"{loss}\n" for loss in losses))
    missed = longhaul("report", run, "--against", golden, "--from-step", 1, "--points", 1, code=1)
    assert "MISSES" in missed.stdout and "step 250" in missed.stdout
    nothing = longhaul("report", run, "--against", golden, "--from-step", 450, code=78)
    assert "the run has steps 1 to 300" in nothing.stderr
    # The default compares from step 450 on, as the gate of the source systems does; these runs end
    # before.
    short = longhaul("report", run, "--against", golden, "--rtol", 0.01).stdout
    assert "no common step from step 450 on (the run has steps 1 to 300" in short
    assert "99.67% of 300 points from step 0 on" in short
    assert list(tmp_path.iterdir()) == [golden]


def test_several_runs_are_drawn_over_each_other(run, tmp_path):
    other = made_up_run.write_run(tmp_path / "other", 120)
    assert "wrote cpt-report.html" in longhaul("report", run, other, cwd=tmp_path).stdout
    text = parse_page(tmp_path / "cpt-report.html")
    for drawing in re.findall(r"<svg.*?</svg>", text, re.S):
        xml.etree.ElementTree.fromstring(drawing)
    assert "within 5%: 100.00% of 120 common steps are, the worst is off by 0% at step " in text
    figures = json.loads(longhaul("report", run, other, "--json").stdout)["runs"]
    assert [one["name"] for one in figures] == ["cpt", "other"]
    assert figures[1]["against_first"]["loss"]["worst"] == 0
    refused = longhaul("report", run, other, "--against", other, code=78).stderr
    assert "--against" in refused and "report one run at a time" in refused
    assert "same directory" in longhaul("report", run, f"{run}/.", code=78).stderr


def test_what_is_no_run_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no run")
    assert "holds nothing of a run" in longhaul("watch", tmp_path, code=78).stderr
    assert "holds nothing of a run" in longhaul("report", tmp_path, code=78).stderr
    assert "is no directory" in longhaul("report", tmp_path / "absent", code=78).stderr


# Stand-ins for trackers, which print what they are given.
WANDB = """
import json
class Run:
    def define_metric(self, *names, **options): pass
    def log(self, figures): print(json.dumps(figures))
    def finish(self): print(json.dumps("finished"))
def init(**options):
    assert options["mode"] == "offline"
    return Run()
"""
MLFLOW = """
import json, sys, types
class Client:
    def get_experiment_by_name(self, name): pass
    def create_experiment(self, name): return name
    def create_run(self, experiment, run_name): return types.SimpleNamespace(info=types.SimpleNamespace(run_id=1))
    def log_batch(self, run, metrics): print(json.dumps({"step": metrics[0][3], **{m[0]: m[1] for m in metrics}}))
    def log_artifact(self, run, path): open(path)
    def set_terminated(self, run): print(json.dumps("finished"))
MlflowClient = Client
sys.modules["mlflow.entities"] = types.SimpleNamespace(Metric=lambda *fields: fields)
"""


def test_the_pages_lines_hand_every_step_that_counts_to_trackers(run, tmp_path):
    """The steps are those that count also where a start went back to an earlier step, or ended
    before the step that the run had reached."""
    run = shutil.copytree(run, tmp_path / "again")
    with open(run / "metrics.jsonl", "a") as metrics:
        for step in (290, 291):
            more = {"source_tokens": {"wiki, old": 64 * step}, "phase_memory_bytes": {"weights": 8}}
            metrics.write(json.dumps(made_up_run.step_record(step, 3, time.time()) | more) + "\n")
    assert longhaul("report", run, "--csv", "a.csv", cwd=tmp_path).stdout == "wrote a.csv\n"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    counted = [line for line in lines if line["step"] <= 291 and (line["attempt"] == 3 or line["step"] < 290)]
    steps = {line["step"]: line for line in counted if "validation" not in line}
    wiki = {line["step"]: line["loss"] for line in counted if "validation" in line}
    with open(tmp_path / "a.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == sorted(steps) == list(range(1, 292)) and len(wiki) == 9
    assert [(row["source_tokens/wiki, old"], row["phase_memory_bytes/weights"]) for row in rows[-3:]] == [
        ("", ""), ("18560", "8"), ("18624", "8")]
    for row in rows:
        record = steps[int(row["step"])]
        assert abs(calendar.timegm(time.strptime(row["timestamp"], "%Y-%m-%dT%H:%M:%SZ")) - record["time"]) < 2
        for key in ("loss", "lr", "tokens", "grad_norm"):
            assert float(row[key]) == record[key]
        assert (row["validation/wiki/loss"] or None) == (wiki.get(record["step"]) and str(wiki[record["step"]]))
    page = (pathlib.Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", page, re.S)
    for program, (name, stand_in) in zip(programs, {"wandb": WANDB, "mlflow": MLFLOW}.items(), strict=True):
        (tmp_path / "program.py").write_text(program)
        (tmp_path / f"{name}.py").write_text(stand_in)
        done = subprocess.run([sys.executable, "program.py", "a.csv", run], cwd=tmp_path, text=True,
                              capture_output=True, timeout=60, check=True)
        *logged, last = map(json.loads, done.stdout.splitlines())
        assert last == "finished" and logged == [
            {key: float(value) for key, value in row.items() if value and key != "timestamp"} for row in rows], name
    assert "name one" in longhaul("report", run, run, "--csv", "a.csv", code=78).stderr



# watch

def test_once_shows_ranks_by_speed_nodes_and_goodput(tmp_path):
    directory = made_up_run.write_run(tmp_path / "cpt", 60, status=made_up_run.status())
    before = snapshot(directory)
    screen = longhaul("watch", directory, "--once").stdout
    assert "\x1b" not in screen
    lines = screen.splitlines()
    assert "training" in lines[0]
    first = next(i for i, line in enumerate(lines) if line.startswith("rank ")) + 1
    assert re.match(r"\s+5\s+n1 .*x1\.60", lines[first]), lines[first]
    assert re.search(r"n0\s+up\s+25%\s+100\.0 GB of 500\.0 GB \(20%\)\s+cuda:0 97% 60\.0 GB",
                     screen)
    assert "step 60 of 60" in screen and "goodput" in screen and "bad_step" in screen
    figures = json.loads(longhaul("watch", directory, "--once", "--json").stdout)
    assert figures["ranks"][0]["rank"] == 5 and figures["alive"]
    assert snapshot(directory) == before


def test_elsewhere_than_on_a_terminal_it_prints_lines_and_ends_with_the_run(tmp_path):
    directory = made_up_run.write_run(tmp_path / "cpt", 60, status=made_up_run.status())
    watch = subprocess.Popen([LONGHAUL, "watch", directory, "--until-end", "--interval", "0.1"],
                             stdout=subprocess.PIPE, text=True)
    try:
        assert watch.stdout.readline().startswith("training step 60 of 60")
        with open(directory / "metrics.jsonl", "a") as metrics:
            metrics.write(json.dumps(made_up_run.step_record(61, 2, time.time())) + "\n")
        assert watch.stdout.readline().startswith("training step 61 of 60")
        (directory / "status.json").write_text(json.dumps(made_up_run.status(state="done")))
        assert watch.stdout.read().splitlines()[-1].startswith("done step 61")
        assert watch.wait(timeout=20) == 0
    finally:
        watch.kill()
        watch.wait()


class Pty:
    """The verb on a terminal of its own, drawn by an emulator."""

    def __init__(self, *arguments, columns=100, lines=30, **environment):
        self.screen = pyte.Screen(columns, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, worker = pty.openpty()
        fcntl.ioctl(worker, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.before = termios.tcgetattr(worker)
        names = {**os.environ, "TERM": "xterm-256color", **environment}
        self.process = subprocess.Popen([LONGHAUL, *map(str, arguments)], stdin=worker,
                                        stdout=worker, stderr=worker, env=names,
                                        start_new_session=True)
        self.worker = worker

    def read(self, seconds):
        end = time.time() + seconds
        while time.time() < end:
            if not select.select([self.master], [], [], 0.05)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError as error:
                assert error.errno == errno.EIO
                return
            self.raw += data
            self.stream.feed(data)

    def until(self, text):
        end = time.time() + 20
        while time.time() < end:
            self.read(0.1)
            if text in "\n".join(self.screen.display):
                return
        raise AssertionError("\n".join(self.screen.display))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.worker)


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **options):
        opened.append(Pty(*arguments, **options))
        return opened[-1]
    yield start
    for one in opened:
        one.close()


def test_a_terminal_is_drawn_in_place_and_left_as_it_was(tmp_path, terminal):
    directory = made_up_run.write_run(tmp_path / "cpt", 60, status=made_up_run.status())
    screen = terminal("watch", directory, "--interval", "0.1")
    screen.until("step 60 of 60")
    with open(directory / "metrics.jsonl", "a") as metrics:
        metrics.write(json.dumps(made_up_run.step_record(61, 2, time.time())) + "\n")
    screen.until("step 61 of 60")
    # A new screen is drawn over the old one; the whole screen is never cleared.
    assert b"\x1b[2J" not in screen.raw
    assert b"\x1b[32m" in screen.raw
    os.write(screen.master, b"q")
    screen.read(0.5)
    assert screen.process.wait(timeout=10) == 0
    assert termios.tcgetattr(screen.worker) == screen.before
    assert screen.raw.rstrip().endswith(b"1 restart") or b"\x1b[?1049l" in screen.raw


def test_a_usual_terminal_shows_how_loss_and_memory_went(tmp_path, terminal):
    directory = made_up_run.write_run(tmp_path / "cpt", 600)
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    for at, record in enumerate(map(json.loads, lines)):
        if "host_memory_bytes" in record:
            record["host_memory_bytes"] = 10**9 + 10**6 * record["step"]
            lines[at] = json.dumps(record)
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    loss = [f"{made_up_run.loss_at(step):.4f}" for step in range(1, 601)]
    figures = {"first": loss[0], "last": loss[-1], "min": min(loss)}
    for columns, rows in ((80, 24), (120, 40)):
        screen = terminal("watch", directory, "--interval", "30", columns=columns, lines=rows,
                          NO_COLOR="1")
        screen.until("events")
        screen.read(0.3)
        shown = "\n".join(line.rstrip() for line in screen.screen.display)
        assert re.search(r"^loss curve  █[▁-█ ]+  first", shown, re.M), shown
        assert re.search(r"^host memory [▁-█ ]+█  first 1\.0 GB", shown, re.M), shown
        assert "max 1.6 GB (rank 0)" in shown
        for name, value in figures.items():
            assert f"  {name} {value}" in shown, (name, shown)
    small = terminal("watch", directory, "--interval", "30", columns=80, lines=14, NO_COLOR="1")
    small.until("goodput")
    assert "loss curve" not in "\n".join(small.screen.display)


def test_a_window_that_becomes_narrow_is_obeyed_and_ctrl_c_ends(tmp_path, terminal):
    directory = made_up_run.write_run(tmp_path / "cpt", 60, status=made_up_run.status())
    screen = terminal("watch", directory, "--interval", "30", columns=120, NO_COLOR="1")
    screen.until("step 60 of 60")
    assert not re.search(rb"\x1b\[\d+m", screen.raw)
    screen.raw = b""
    screen.screen.resize(34, 50)
    fcntl.ioctl(screen.worker, termios.TIOCSWINSZ, struct.pack("HHHH", 34, 50, 0, 0))
    os.kill(screen.process.pid, signal.SIGWINCH)
    screen.read(1.5)
    frames = [f for f in screen.raw.decode().split("\x1b[?2026h\x1b[H") if f]
    assert frames
    lines = re.sub(r"\x1b\[[?0-9]*[A-Za-z]|\r", "", frames[-1]).split("\n")
    assert len(lines) <= 34 and max(map(len, lines)) <= 50
    # In a narrow window the right ends of wide lines go to further lines; they are not cut off.
    shown = "\n".join(lines)
    for part in (r"attempt 2, 1 restart", r"\blr \d\.\d{3}e-\d\d$", r"mfu [\d.]+%", r" a step$",
                 r"^rank .*slowest first$", r"^ +5 +n1 .*x1\.60 \S{10}$"):
        assert re.search(part, shown, re.M), (part, shown)
    os.kill(screen.process.pid, signal.SIGINT)
    screen.read(0.5)
    assert screen.process.wait(timeout=10) == 0
