"""The pages as `longhaul docs` shows them, and `longhaul recipe`, which writes a recipe's model,
too."""

import os
import pathlib
import pty
import re
import shutil
import subprocess

import pytest
from programs import BIN, SOURCE
from refusals import refused_without_a_trace

LONGHAUL = BIN / "longhaul"
PAGES = sorted(p.stem for p in (SOURCE / "docs").glob("*.md") if p.stem != "README")
NAMED = re.compile(r"docs/[\w-]+\.md(?:#[\w-]+)?")
OF_OUR_OWN = sorted(p.stem for p in (SOURCE / "recipes").glob("*.toml")
                    if 'config = "recipes/' in p.read_text())


def shown(*arguments, columns=80, cwd=None):
    """The page as it is written to a pipe."""
    return subprocess.run([LONGHAUL, "docs", *arguments], cwd=cwd, check=True, text=True,
                          capture_output=True, env={"COLUMNS": str(columns)}).stdout


def on_a_terminal(*arguments, **environment):
    """What the program writes to a terminal."""
    main, other = pty.openpty()
    program = subprocess.Popen([LONGHAUL, "docs", *arguments], stdin=other, stdout=other,
                               stderr=other, env={"TERM": "xterm", **environment})
    os.close(other)
    written = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the other end is closed
            break
        written += part
    os.close(main)
    assert program.wait(timeout=20) == 0, written
    return written.decode().replace("\r\n", "\n")


# --- which pages there are

def test_every_page_that_the_program_names_is_shown_by_that_name():
    named = {}
    for folder in ("apps", "longhaul", "recipes"):
        for path in (SOURCE / folder).rglob("*"):
            if path.suffix in (".cpp", ".h", ".toml") and not path.name.endswith("_test.cpp"):
                for name in NAMED.findall(path.read_text()):
                    named.setdefault(name, path)
    assert len(named) >= 4
    for name, path in named.items():
        assert shown(name).startswith("#"), f"{path}: {name}"


def test_the_list_has_every_page_and_each_is_shown():
    listed = set(re.findall(r"^([a-z-]+)(?:,| )", shown(), re.M))
    assert set(PAGES) <= listed
    for page in PAGES:
        assert shown(page).startswith("# ")
    for page in ("readme", "contributing", "security", "changelog"):
        assert shown(page).startswith("# ")


def test_a_link_between_pages_can_be_typed_as_it_stands():
    page = (SOURCE / "docs/layouts.md").read_text()
    for target in sorted(set(re.findall(r"\]\(([a-z-]+\.md#[\w-]+)\)", page))):
        assert shown(target).startswith("#"), target


def test_names_that_are_nearly_right_lead_to_the_right_one(run, tmp_path):
    refused_without_a_trace(run, tmp_path, ["docs", "trobleshooting"],
                            "there is no page", "`longhaul docs troubleshooting`")
    refused_without_a_trace(run, tmp_path, ["docs", "docs/data.md#tokenisers"],
                            "no section", "`longhaul docs data#tokenizers`")
    refused_without_a_trace(run, tmp_path, ["docs", "/etc/passwd"], "there is no page")
    refused_without_a_trace(run, tmp_path, ["docs", "data", "layouts"], "longhaul docs --help")


# --- how they are shown

def test_a_pipe_gets_plain_text_of_the_width_that_columns_names():
    for page in [*PAGES, ""]:
        for columns in (60, 100):
            text = shown(*[page] * bool(page), columns=columns)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), page
            wide = [line for line in text.splitlines()
                    if len(line) > columns and not re.match(r" {4,}", line)]
            assert not wide, f"{page} in {columns} columns: {wide[:3]}"


def test_nothing_of_a_page_is_lost():
    """No word of a page is lost, except targets of links that the link's words name, and the
    languages of code."""
    words = re.compile(r"[A-Za-z]{3,}")
    for page in ("troubleshooting", "running", "failures"):
        source = (SOURCE / f"docs/{page}.md").read_text()
        assert set(words.findall(re.sub(r"\]\([^)]*\)|^```.*", "", source, flags=re.M))) <= \
            set(words.findall(shown(page, columns=1000))), page


def test_a_terminal_gets_colours_through_the_pager_that_is_named(tmp_path):
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\necho \"$1 $LESS\" > {tmp_path}/words\ncat > {tmp_path}/page\n"
                     "echo left\n")
    pager.chmod(0o755)
    assert on_a_terminal("data", PAGER=f"{pager} two;words", PATH=os.environ["PATH"]) == "left\n"
    assert (tmp_path / "words").read_text() == "two;words FRX\n"  # no shell has read them
    page = (tmp_path / "page").read_text()
    assert page.startswith("\x1b[1;4mData\x1b[0m\n")
    assert re.sub(r"\x1b\[[\d;]*m", "", page).count("\x1b") == 0


@pytest.mark.parametrize("environment", [
    {"PAGER": ""}, {"PAGER": "/nowhere/pager"}, {"PATH": "/nowhere"}], ids=str)
def test_without_a_pager_the_page_is_printed(environment):
    assert "\x1b[1;4mData\x1b[0m\n" in on_a_terminal("data", **environment)


def test_no_color_is_heeded():
    assert on_a_terminal("data", PAGER="", NO_COLOR="1").startswith("# Data\n")


# --- recipes

@pytest.mark.parametrize("name", OF_OUR_OWN)
def test_a_recipe_that_is_shown_elsewhere_names_a_model_that_is_there(run, tmp_path, name):
    text = run("longhaul", "recipe", "show", name, cwd=tmp_path).stdout
    model = pathlib.Path(re.search(r'^config = "(.*)"$', text, re.M).group(1))
    assert (model / "config.json").is_file()
    source = (SOURCE / "recipes" / f"{name}.toml").read_text()
    # The path of the model is the only change, and in the source tree nothing is changed.
    assert text.replace(f'"{model}"', f'"{model.relative_to(SOURCE)}"') == source
    assert run("longhaul", "recipe", "show", name, cwd=SOURCE).stdout == source


def test_a_recipe_is_written_with_its_model_beside_it(run, tmp_path):
    said = run("longhaul", "recipe", "show", "llama2-7b", "--out", "mine/run.toml",
               cwd=tmp_path).stdout
    assert "mine/run.toml" in said and "mine/models/llama2-7b" in said
    assert 'config = "mine/models/llama2-7b"' in (tmp_path / "mine/run.toml").read_text()
    assert (tmp_path / "mine/models/llama2-7b/config.json").read_bytes() == \
        (SOURCE / "recipes/models/llama2-7b/config.json").read_bytes()
    resolved = run("longhaul", "config", "mine/run.toml", "--ranks", "8", cwd=tmp_path).stdout
    assert "mine/models/llama2-7b" in resolved
    # When the same command runs again there is nothing to do. A file that a person has changed
    # stays as it is.
    run("longhaul", "recipe", "show", "llama2-7b", "--out", "mine/run.toml", cwd=tmp_path)
    (tmp_path / "mine/run.toml").write_text("[run]\n")
    refused_without_a_trace(run, tmp_path, ["recipe", "show", "llama2-7b", "--out",
                                            "mine/run.toml"], "mine/run.toml is there already")
    (tmp_path / "mine/models/llama2-7b/config.json").write_text("{}")
    refused_without_a_trace(run, tmp_path, ["recipe", "show", "llama2-7b", "--out",
                                            "mine/new.toml"], "config.json is there already")
    (tmp_path / "link.toml").symlink_to("nothing")
    refused_without_a_trace(run, tmp_path, ["recipe", "show", "llama3-8b-cpt", "--out",
                                            "link.toml"], "link.toml is there already")


def test_a_recipe_whose_model_another_run_makes_is_written_alone(run, tmp_path):
    said = run("longhaul", "recipe", "show", "demo/continue", "--out", "run.toml",
               cwd=tmp_path).stdout
    assert os.listdir(tmp_path) == ["run.toml"] and "its model" not in said
    refused_without_a_trace(run, tmp_path, ["recipe", "show", "demo/continue", "--out", "."],
                            "a directory", "run.toml")


def test_an_installed_tree_writes_recipes_of_its_own(tmp_path):
    """The tree has only the folders that the verb looks at: bin and share."""
    tree = tmp_path / "tree"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(LONGHAUL, tree / "bin/longhaul")
    shutil.copytree(SOURCE / "recipes", tree / "share/longhaul/recipes")
    text = subprocess.run([tree / "bin/longhaul", "recipe", "show", "neox-20b"], check=True,
                          cwd=tmp_path, capture_output=True, text=True).stdout
    assert f'config = "{tree}/share/longhaul/recipes/models/neox-20b"' in text
