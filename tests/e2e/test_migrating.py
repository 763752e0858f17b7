"""docs/migrating.md names no key and no verb that is not so."""

import json
import pathlib
import re

import pytest

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "migrating.md").read_text()
CODE = re.findall(r"`([^`\n]+)`", TEXT)
FILES = re.compile(r"\.(json|jsonl|txt|toml|md|pt|py|sh|yaml)$")
KEY = re.compile(r"([a-z]+\.[a-z_]+)(?: = (.+))?")


@pytest.fixture(scope="module")
def reference(run):
    return {item["key"]: item for item in json.loads(run("longhaul", "config", "--json").stdout)}


def named_keys():
    """What is written as `section.key` or `section.key = value`: key -> values."""
    found = {}
    for code in CODE:
        match = KEY.fullmatch(code)
        if match and not FILES.search(match[1]):
            found.setdefault(match[1], set()).add(match[2])
    return found


def section(title):
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_key_that_it_names_exists(reference):
    keys = named_keys()
    assert len(keys) > 50
    assert not keys.keys() - reference.keys()


def test_every_section_that_it_names_exists(reference):
    sections = {code[1:-1] for code in CODE if re.fullmatch(r"\[[a-z]+\]", code)}
    assert "precision" in sections
    assert not sections - {key.split(".")[0] for key in reference}


def test_values_that_it_gives_are_of_the_keys_type(reference):
    """A quoted word must be one of an enumeration's names where the reference lists them."""
    checked = 0
    for key, values in named_keys().items():
        choices = re.findall(r'"([^"]+)"', reference[key]["type"])
        for value in values - {None}:
            if choices and re.fullmatch(r'"[^"]+"', value):
                assert value.strip('"') in choices, f"{key} = {value}"
                checked += 1
    assert checked >= 5


def test_it_lists_exactly_the_keys_that_are_refused(reference):
    listed = {KEY.fullmatch(code)[1]
              for row in section("What is not there yet").splitlines() if row.startswith("|")
              for code in re.findall(r"`([^`]+)`", row.split("|")[1])}
    refused = {key for key, item in reference.items() if item["available"] != "yes"}
    assert listed == refused


def test_it_lists_exactly_the_verbs_that_are_refused(run):
    named = {match[1] for code in CODE if (match := re.match(r"(?:.* )?longhaul ([a-z]+)", code))}
    listed = re.search(r"^Verbs: .*$", section("What is not there yet"), re.M)[0]
    later = set(re.findall(r"`longhaul ([a-z]+)`", listed))
    there = set(re.findall(r"^  ([a-z]+) ", run("longhaul", "--help").stdout, re.M))
    assert {"train", "config", "export", "data"} <= named - later <= there
    for verb in later:
        assert "not available yet" in run("longhaul", verb, check=False).stderr
