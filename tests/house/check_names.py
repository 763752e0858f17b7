"""What a run leaves is named in one place: longhaul/run names the files of a run's directory,
the kinds of its events and the figures of a step's record, and nobody else does (tests do, since
they say what the names are)."""

import re

import house

OWNER = "longhaul/run/"
NAME = re.compile(r'inline constexpr const char\* k\w+ = "([^"]+)"')
KIND = re.compile(r'const char\* k(?:Kind|\w+Event) = "([^"]+)"')
FIGURE = re.compile(r'(?:k\w+Key = |^ +\{)"(\w+)"', re.M)
# Patterns of code before a string that is an event's kind.
TOLD = re.compile(r"\bevents?\(\s*$")
COMPARED = re.compile(r"\bkind\s*[!=]=\s*$")
STRING = re.compile(r'"((?:\\.|[^"\\\n])*)"')
COMMENT = re.compile(r"^[ \t]*#[^\n]*|//[^\n]*", re.M)


def file_names():
    """The last parts of the paths of longhaul/run/files.h."""
    return {path.rsplit("/", 1)[-1] for path in NAME.findall(house.text(OWNER + "files.h"))}


def event_kinds():
    return set(KIND.findall(house.text(OWNER + "events.h")))


def figures():
    """The names of figures that mean nothing else. (A name like "lr" may.)"""
    owners = house.text(OWNER + "step_record.h") + house.text(OWNER + "step_record.cpp")
    return {key for key in FIGURE.findall(owners) if "_" in key}


def problems_of(name, source, names, kinds, keys=()):
    """Strings that name a run's file: one that ends in .json, say, wherever it stands; a word
    like "captures" where it is joined to a path. Strings that name a kind of event: one like
    "bad_step" wherever it stands, a word like "start" where a kind is given or compared. Strings
    that name a figure."""
    source = COMMENT.sub(lambda match: " " * len(match.group(0)), source)
    dotted = [word for word in names if "." in word]
    found = []
    for match in STRING.finditer(source):
        text = match.group(1)
        before = source[max(0, match.start() - 80):match.start()]
        joined = before.rstrip().endswith("/")
        bad = [word for word in dotted if re.search(rf"(?<![\w.-]){re.escape(word)}", text)]
        bad += [text] if text in names and "." not in text and (joined or text.isupper()) else []
        line = source.count("\n", 0, match.start()) + 1
        for word in bad:
            found.append(f"{name}:{line}: '{word}' is named in {OWNER}files.h")
        known = text in kinds and ("_" in text or COMPARED.search(before))
        if known or TOLD.search(before):
            found.append(f"{name}:{line}: '{text}' is a kind of {OWNER}events.h")
        if text in keys:
            found.append(f"{name}:{line}: '{text}' is a figure of {OWNER}step_record.h")
    return found


def in_scope(name):
    return (name.startswith(("longhaul/", "apps/")) and not name.startswith(OWNER)
            and not re.search(r"_test\.\w+$|/(test|made_up)_\w+\.h$", name))


def main():
    names, kinds, keys = file_names(), event_kinds(), figures()
    files = [n for n in house.files(*house.CODE) if in_scope(n)]
    problems = [p for n in files for p in problems_of(n, house.text(n), names, kinds, keys)]
    house.finish("names", problems, len(files) if names and kinds and keys else 0)


if __name__ == "__main__":
    main()
