"""The line that ends `make test` counts cases, and a crash never counts as passed."""

import pathlib
import sys
import unittest
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import test_summary  # noqa: E402


def case(status, output):
    element = ElementTree.Element("testcase", name="x", status=status)
    ElementTree.SubElement(element, "system-out").text = output
    return element


class Counting(unittest.TestCase):
    def test_googletest_cases_are_counted_one_by_one(self):
        output = ("[==========] 5 tests from 2 test suites ran. (3 ms total)\n"
                  "[  PASSED  ] 3 tests.\n[  SKIPPED ] 1 test, listed below:\n"
                  "[  SKIPPED ] A.b\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] A.c\n")
        self.assertEqual((3, 1, 1), test_summary.count(case("fail", output)))

    def test_pytest_cases_are_counted_one_by_one(self):
        self.assertEqual((7, 2, 1), test_summary.count(
            case("fail", "==== 2 failed, 7 passed, 1 skipped in 3.21s ====\n")))
        self.assertEqual((4, 0, 0), test_summary.count(case("run", "4 passed in 0.10s\n")))

    def test_a_plain_program_counts_as_one(self):
        self.assertEqual((1, 0, 0), test_summary.count(case("run", "hello\n")))
        self.assertEqual((0, 1, 0), test_summary.count(case("fail", "hello\n")))

    def test_a_crash_after_passed_cases_is_a_failure(self):
        output = "[==========] 9 tests from 1 test suite ran.\n[  PASSED  ] 9 tests.\n"
        self.assertEqual((9, 1, 0), test_summary.count(case("fail", output)))

    def test_a_test_that_never_ran_is_a_failure(self):
        self.assertEqual((0, 1, 0), test_summary.count(case("notrun", "")))


if __name__ == "__main__":
    unittest.main()
