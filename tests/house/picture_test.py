"""The README's picture is drawn only of runs whose every loss is the same to the last bit."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import house

SCRIPT = house.ROOT / "tools/picture.py"


def records(attempt, steps):
    return [{"attempt": attempt, "step": s, "loss": 9 - s / 10} for s in steps]


class Picture(unittest.TestCase):
    def draw(self, killed, undisturbed):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, lines in (("killed", killed), ("whole", undisturbed)):
                (root / name).mkdir()
                (root / name / "metrics.jsonl").write_text(
                    "".join(json.dumps(line) + "\n" for line in lines))
            done = subprocess.run([sys.executable, SCRIPT, root / "killed", root / "whole", root / "p.svg", "A test"],
                                  capture_output=True, text=True, check=False)
            drawn = root / "p.svg"
            return done, drawn.read_text() if drawn.exists() else None

    def test_equal_runs_are_drawn_with_their_steps(self):
        done, svg = self.draw(records(1, range(1, 31)) + records(2, range(21, 51)), records(1, range(1, 51)))
        self.assertEqual(0, done.returncode, done.stderr)
        words = "".join(xml.etree.ElementTree.fromstring(svg).itertext())
        for part in ("A test: all 60 losses", "after step 30", "the checkpoint of step 20"):
            self.assertIn(part, words)

    def test_one_bit_is_enough_to_refuse(self):
        killed = records(1, range(1, 31)) + records(2, range(21, 51))
        killed[40]["loss"] += 1e-15
        done, svg = self.draw(killed, records(1, range(1, 51)))
        self.assertEqual((1, None), (done.returncode, svg))
        self.assertIn("undisturbed", done.stderr)

    def test_a_missing_step_is_refused(self):
        done, svg = self.draw(records(1, range(1, 31)) + records(2, range(33, 51)), records(1, range(1, 51)))
        self.assertEqual((1, None), (done.returncode, svg))


if __name__ == "__main__":
    unittest.main()
