"""A new kind of layer does not compile before each reader of a network has decided about it.

A copy of the variant has one kind more; each reader is compiled with the copy. What the build joins
is compiled here by itself, with the flags of its target.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import house

BUILD = pathlib.Path(sys.argv.pop())
KINDS = r"(?:nn::)?Attention, (?:nn::)?FeedForward, (?:nn::)?Experts"
# The header with the variant -> its readers, and what each of them asks by_kind about.
VARIANTS = {
    "longhaul/families/network.h": {"longhaul/checkpoint/gguf/gguf_architecture.cpp": "core",
                                    "longhaul/checkpoint/gguf/gguf_model.cpp": "second.core",
                                    "longhaul/families/adapter.cpp": "branch.core",
                                    "longhaul/families/describe.cpp": "core",
                                    "longhaul/models/block.cpp": "form",
                                    "longhaul/models/source_model.cpp": "branch.core"},
    "longhaul/models/block.h": {"longhaul/models/block.cpp": "core"},
}
TOY = "struct Toy { bool operator==(const Toy&) const = default; };\n"
USING = re.compile(rf"^using Core = std::variant<{KINDS}>;", re.M)
ASKED = re.compile(r"\bby_kind\(\s*([\w.]+),")
# Other ways to look for a kind, which a new kind would pass by.
BY_HAND = re.compile(r"(get_if|holds_alternative)<(families::|nn::)?(Attention|FeedForward|Experts)>")


def flags_of(source):
    """The compiler's call for the target of a source, without its output and its source."""
    target = "longhaul_" + source.split("/")[1]
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if f"/{target}.dir/" in entry["command"]:
            words = shlex.split(entry["command"])
            return [w for w in words[:words.index("-o")] if not w.endswith("ccache")], entry["directory"]
    raise AssertionError(f"nothing is compiled for {target}")


def said_of(source, copy):
    """The compiler's messages about a source that finds headers in `copy` first."""
    words, directory = flags_of(source)
    done = subprocess.run([words[0], f"-I{copy}", *words[1:], "-fsyntax-only", house.ROOT / source],
                          cwd=directory, capture_output=True, text=True, env={"LC_ALL": "C"})
    return done.returncode, done.stderr


def asked(name):
    """What a file asks by_kind about: the argument, and the number of the call's line."""
    text = house.text(name)
    return [(found.group(1), text.count("\n", 0, found.start()) + 1)
            for found in ASKED.finditer(text)]


class Kinds(unittest.TestCase):
    def refused(self, header, source, argument):
        text = house.text(header)
        self.assertRegex(text, USING)
        with tempfile.TemporaryDirectory() as copy:
            path = pathlib.Path(copy, header)
            path.parent.mkdir(parents=True)
            path.write_text(USING.sub(lambda found: TOY + found.group(0)[:-2] + ", Toy>;", text))
            code, said = said_of(source, copy)
        self.assertNotEqual(code, 0, f"{source} takes a kind that it does not know")
        self.assertIn("Toy", said)
        lines = [line for of, line in asked(source) if of == argument]
        self.assertTrue(lines, source)
        for line in lines:
            self.assertRegex(said, rf"{source}:{line}:", "a reader takes the kind")

    def test_each_reader_refuses_a_kind_that_it_does_not_know(self):
        for header, readers in VARIANTS.items():
            for source, argument in readers.items():
                with self.subTest(header=header, source=source):
                    self.refused(header, source, argument)

    def test_nobody_else_reads_a_kind_of_layer(self):
        readers = {(source, argument) for found in VARIANTS.values() for source, argument in found.items()}
        for name in house.files(".h", ".cpp"):
            if name.startswith(("longhaul/", "apps/")) and not name.endswith("_test.cpp"):
                self.assertIsNone(BY_HAND.search(house.without_comments(house.text(name))), name)
                for argument, _ in asked(name):
                    if not argument.endswith("head"):
                        self.assertIn((name, argument), readers)


if __name__ == "__main__":
    unittest.main()
