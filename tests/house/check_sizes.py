"""A source file has at most 600 lines, a function at most 80, a folder at most 40 source files
beside its tests, and the folders to which everything comes, 36.

Functions are found by the formatter's layout: a definition starts in the first column (or
inside a class at two spaces) and its closing brace stands in the same column.
"""

import collections
import re

import house

FILE_LIMIT = 600
FUNCTION_LIMIT = 80
FOLDER_LIMIT = 40
# Folders that grow with every feature keep room for the next ones.
ROOMY_LIMIT = 36
ROOMY = {"apps", "longhaul/base", "longhaul/config", "longhaul/families", "longhaul/imports"}
# file -> (limit, reason). Empty is best.
LARGER_FILES = {
    "longhaul/tokenizer/unicode/unicode_data.cpp": (2600, "a generated table"),
}
LARGER_FUNCTIONS = {}
OPENING = re.compile(r"^( {0,2})(?! )[^#/}\n].*\)[^;]*\{$")
NO_FUNCTION = re.compile(r"^\s*(namespace|class|struct|enum|union|extern|if|for|while|switch|"
                         r"else|do|try|catch|return)\b")


def long_functions(name, source, limit=FUNCTION_LIMIT):
    lines = house.without_comments(source).split("\n")
    found, number = [], 0
    while number < len(lines):
        line = lines[number]
        opened = OPENING.match(line)
        if not opened or NO_FUNCTION.match(line):
            number += 1
            continue
        closing = opened.group(1) + "}"
        end = next((i for i in range(number + 1, len(lines))
                    if lines[i].startswith(closing)), number)
        length = end - number + 1
        if length > limit:
            found.append(f"{name}:{number + 1}: function of {length} lines, at most {limit}")
        number = max(end, number + 1)
    return found


def problems_of(name, source):
    found = []
    lines = source.count("\n")
    limit = LARGER_FILES.get(name, (FILE_LIMIT, ""))[0]
    if lines > limit:
        found.append(f"{name}: {lines} lines, at most {limit}: split it")
    if name not in LARGER_FUNCTIONS:
        found += long_functions(name, source)
    return found


def large_folders(names):
    counts = collections.Counter(n.rsplit("/", 1)[0] for n in names
                                 if n.startswith(("longhaul/", "apps/")) and n.endswith(house.CODE)
                                 and not n.endswith("_test.cpp"))
    limits = {folder: ROOMY_LIMIT if folder in ROOMY else FOLDER_LIMIT for folder in counts}
    return [f"{folder}: {count} source files, at most {limits[folder]}: give it rooms"
            for folder, count in sorted(counts.items()) if count > limits[folder]]


def main():
    names = house.files(*house.CODE, ".py", ".sh", ".cmake")
    code = [n for n in names if not n.startswith("tests/fixtures/")]
    problems = [p for n in code for p in problems_of(n, house.text(n))]
    problems += large_folders(code)
    house.finish("sizes", problems, len(code))


if __name__ == "__main__":
    main()
