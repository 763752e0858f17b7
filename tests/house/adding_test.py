"""docs/adding.md lists the files of an op: no other source names a kernel of an op, and each
pattern of the list is needed."""

import pathlib
import re
import unittest

import house

ARGUMENTS = "longhaul/ops/kernels/arguments.h"
# In these places the name of an operator, such as rms_norm_forward, is no call of the operation of
# that name.
MACHINERY = re.compile(r"longhaul/(ops/fused|ops/kernels|cuda)/|(longhaul/ops|tests/cuda_host)/CMakeLists\.txt$")
PLACES = {"NAME": r"(?:(?!fused/|kernels/)[a-z]+/)?[a-z_]+(?<!_test)", "KIND": r"[a-z_]+"}
MOST_SOURCES, MOST_FILES = 4, 6


def listed(page):
    """The patterns of files, one of a brace each, that the section of an op lists."""
    section = page.split("\n## An op\n")[1].split("\n## ")[0]
    patterns = []
    for path in re.findall(r"^\d+\. `([^`]+)`", section, re.M):
        stem, brace, rest = path.partition("{")
        for end in rest.rstrip("}").split(",") if brace else [""]:
            pattern = re.escape(stem + end)
            for word, any_of_it in PLACES.items():
                pattern = pattern.replace(word, any_of_it)
            patterns.append(pattern)
    return patterns


def kernels_of(source):
    """For the kernels in the lists: name of the kernel -> name of its operator."""
    operators = dict(re.findall(r"LH_OPERATOR\((\w+),\s*(\w+)", source))
    lists = re.findall(r"^using \w+ =\s*KernelList<([^>]*)>", source, re.M)
    return {name: operators[name] for one in lists for name in re.findall(r"\w+", one)}


def names_kernel(name, source, kernel, operator):
    """Whether a source names a kernel; an operator of one word (rope) is a word of English too."""
    if not MACHINERY.match(name):
        return f"kernels::{kernel}" in source and re.search(rf"\bkernels::{kernel}\b", source)
    if kernel in source and re.search(rf"\b{kernel}\b", source):
        return True
    return "_" in operator and operator in source and re.search(rf"\b{operator}(_|\b)", source)


def problems_of(page, sources):
    """What is wrong with the list of files on the page, for sources given by name."""
    patterns = listed(page)
    problems, used, operations = [], set(), {}
    for kernel, operator in kernels_of(sources[ARGUMENTS]).items():
        if kernel == "GroupedGradient":  # the CPU's is one of several products (ops/fused/fused.cpp)
            continue
        found = {n for n, s in sources.items() if names_kernel(n, s, kernel, operator)}
        owners = [n for n in found if n.endswith(".cpp")]
        if len(owners) != 1:
            problems.append(f"{kernel} belongs to {sorted(owners)}")
            continue
        operations.setdefault(owners[0], set()).update(found)
        if len(found) > MOST_SOURCES:
            problems.append(f"{kernel} is named in {sorted(found)}")
    for owner, found in operations.items():
        stem = owner.removesuffix(".cpp")
        found |= {n for n in (stem + ".h", stem + "_test.cpp") if n in sources}
        word = pathlib.PurePath(stem).name
        found |= {n for n, s in sources.items()
                  if n.endswith("CMakeLists.txt") and MACHINERY.match(n) and re.search(rf"\b{word}\b", s)}
        for name in sorted(found):
            of = [p for p in patterns if re.fullmatch(p, name)]
            used.update(of)
            if not of:
                problems.append(f"{name} knows {stem}, and docs/adding.md does not list it")
        if len(found) > MOST_FILES:
            problems.append(f"{stem} stands in {sorted(found)}")
    return problems + [f"{p} is listed, and no op is there" for p in patterns if p not in used]


class Op(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.page = house.text("docs/adding.md")
        names = [n for n in house.files(*house.CODE, "CMakeLists.txt")
                 if n.startswith(("longhaul/", "apps/", "tests/cuda_host/CMake"))]
        # A test of an op counts, whatever it names: other tests compare kernels and devices.
        cls.sources = {n: "" if n.endswith("_test.cpp") else house.text(n) for n in names}
        cls.sources = {n: s for n, s in cls.sources.items()
                       if n.startswith("longhaul/ops/") or MACHINERY.match(n) or "kernels::" in s}

    def test_lies_where_the_page_says(self):
        self.assertEqual([], problems_of(self.page, self.sources))
        self.assertGreater(len(kernels_of(self.sources[ARGUMENTS])), 10)

    def test_has_at_most_six_files(self):
        self.assertEqual(MOST_FILES, len(listed(self.page)))

    def test_of_rms_norm_stands_in_four_sources(self):
        self.assertEqual(
            {"longhaul/ops/rms_norm.cpp", ARGUMENTS, "longhaul/ops/kernels/norm_loops.h",
             "longhaul/cuda/kernels/rms_norm.cu"},
            {n for n, s in self.sources.items() if names_kernel(n, s, "RmsNormForward", "rms_norm_forward")})

    def test_in_a_further_source_is_a_problem(self):
        for name, text in (("longhaul/ops/kernels/cpu.h", "void check(const RmsNormForward<T>& a);"),
                           ("longhaul/ops/kernels/isa_kernels.h", "{rms_norm_forward_loop<T>},"),
                           ("longhaul/ops/CMakeLists.txt", "SOURCES rms_norm.cpp"),
                           ("longhaul/nn/norm.cpp", "kernels::RmsNormForward<float> norm;")):
            with self.subTest(name):
                self.assertTrue(problems_of(self.page, self.sources | {name: self.sources.get(name, "") + text}))

    def test_that_the_page_does_not_list_whole_is_a_problem(self):
        for line in re.findall(r"^\d+\. `longhaul/(?:ops|cuda)/[^`]*`", self.page, re.M):
            with self.subTest(line):
                page = self.page.replace(line, "- ")
                self.assertTrue(problems_of(page, self.sources))

    def test_list_with_a_file_too_many_is_a_problem(self):
        page = self.page.replace("\n## An op\n", "\n## An op\n\n0. `longhaul/ops/fused/NAME.h`\n")
        self.assertTrue(problems_of(page, self.sources))


if __name__ == "__main__":
    unittest.main()
