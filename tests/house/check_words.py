"""The tree has no marks of unfinished work and no path of one person's machine."""

import re

import house

# Written in two halves, so that this file does not accuse itself.
WORDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
PATHS = re.compile(r"(?<![\w.])/(?:ho" r"me|Us" r"ers|wo" r"rk|ro" r"ot)/[\w.-]+")
TEXT = house.CODE + (".py", ".sh", ".cmake", ".md", ".toml", ".txt", ".in", ".json", "run",
                     "Makefile")
# Fixtures hold files that others wrote.
SKIP = re.compile(r"(^|/)(fixtures|corpus)/")


def problems_of(name, source):
    found = []
    for number, line in enumerate(source.splitlines(), 1):
        word = WORDS.search(line)
        if word:
            found.append(f"{name}:{number}: '{word.group(0)}' left in the tree")
        path = PATHS.search(line)
        if path:
            found.append(f"{name}:{number}: path of one machine: {path.group(0)}")
    return found


def main():
    names = [n for n in house.files(*TEXT) if not SKIP.search(n)]
    problems = [p for n in names for p in problems_of(n, house.text(n))]
    house.finish("words", problems, len(names))


if __name__ == "__main__":
    main()
