#!/usr/bin/python3
"""Draws the losses of a run that was killed and typed again over those of an undisturbed one.

    tools/picture.py KILLED UNDISTURBED OUT.svg WHAT

The first two are run directories of the same settings, WHAT says of what. Ends with 1 unless
every loss of the killed run, those of steps that were made twice too, is the undisturbed one's
to the last bit.
"""

import pathlib
import sys

import demo_numbers

WIDTH, HEIGHT = 880, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 28, 84, 56
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { font: 14px -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #57606a; }
  .title { font-size: 19px; font-weight: 600; fill: #1f2328; }
  .tick { font-size: 12px; }
  .grid { stroke: #eaeef2; }
  .curve { fill: none; stroke-linejoin: round; stroke-linecap: round; }
  .whole { stroke: #c8d1da; stroke-width: 9; }
  .first { stroke: #0969da; stroke-width: 2.5; }
  .second { stroke: #1a7f37; stroke-width: 2.5; }
  .kill { stroke: #cf222e; stroke-width: 3; fill: none; }
  .kill-text { fill: #cf222e; font-weight: 600; }
  .first-text { fill: #0969da; font-weight: 600; }
  .second-text { fill: #1a7f37; font-weight: 600; }
  .dot { fill: #1a7f37; stroke: #ffffff; stroke-width: 2; }
  .twice { stroke-dasharray: 5 7; }
  .guide { stroke-dasharray: 3 4; stroke-width: 1.2; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d; }
    text { fill: #9198a1; }
    .title { fill: #f0f6fc; }
    .grid { stroke: #21262d; }
    .whole { stroke: #3d444d; }
    .first { stroke: #4493f8; } .first-text { fill: #4493f8; }
    .second { stroke: #3fb950; } .second-text { fill: #3fb950; }
    .kill { stroke: #f85149; } .kill-text { fill: #f85149; }
    .dot { fill: #3fb950; stroke: #0d1117; }
  }
"""


def losses(run):
    """{attempt: {step: loss}}, attempts in their order."""
    found = {}
    for record in demo_numbers.steps(run):
        found.setdefault(record["attempt"], {})[record["step"]] = record["loss"]
    return [found[attempt] for attempt in sorted(found)]


def check(first, second, whole):
    """Ends the program where a loss differs or a step is missing."""
    for part in (first, second):
        for step, loss in part.items():
            if loss != whole.get(step):
                sys.exit(f"picture: step {step} has loss {loss}, undisturbed {whole.get(step)}")
    if set(first) | set(second) != set(whole):
        sys.exit("picture: the runs do not have the same steps")


class Axes:
    """From steps and losses to the picture's points."""

    def __init__(self, whole):
        self.last = max(whole)
        self.low, self.high = int(min(whole.values())), int(max(whole.values())) + 1

    def x(self, step):
        return round(LEFT + (WIDTH - LEFT - RIGHT) * step / self.last, 1)

    def y(self, loss):
        share = (self.high - loss) / (self.high - self.low)
        return round(TOP + (HEIGHT - TOP - BOTTOM) * share, 1)

    def curve(self, losses_of, kind):
        points = " ".join(f"{self.x(s)},{self.y(loss)}" for s, loss in sorted(losses_of.items()))
        return f'<polyline class="curve {kind}" points="{points}"/>'

    def drawn(self):
        for loss in range(self.low, self.high + 1):
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{self.y(loss)}" y2="{self.y(loss)}"/>'
            yield text(LEFT - 10, self.y(loss) + 4, str(loss), "tick", "end")
        for step in range(0, self.last + 1, 50):
            yield text(self.x(step), HEIGHT - BOTTOM + 20, str(step), "tick", "middle")
        yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "step", "", "middle")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        yield (f'<text transform="translate(22,{middle}) rotate(-90)" text-anchor="middle">'
               "training loss</text>")


def text(x, y, words, kind="", anchor="start"):
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{words}</text>'


def legend():
    """What each line is, in the empty corner."""
    x, y = WIDTH - RIGHT - 230, TOP + 26
    for kind, words in (("whole", "undisturbed run"), ("first", "killed on the way"),
                        ("second", "the same command again")):
        yield f'<line class="curve {kind}" x1="{x}" x2="{x + 30}" y1="{y - 5}" y2="{y - 5}"/>'
        yield text(x + 42, y, words)
        y += 24


def picture(first, second, whole, what):
    axes = Axes(whole)
    kill, begin = max(first), min(second) - 1
    kx, ky, bx, by = axes.x(kill), axes.y(first[kill]), axes.x(begin), axes.y(whole[begin])
    mark = ky - 96
    twice = {step: loss for step, loss in second.items() if step <= kill}
    after = {step: loss for step, loss in second.items() if step >= kill}
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'width="{WIDTH}" height="{HEIGHT}" role="img">')
    yield (f"<title>Training loss: killed at step {kill}, resumed from the checkpoint of step {begin}, "
           "equal to an undisturbed run</title>")
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>'
    yield text(LEFT, 36, "Killed. Typed again. The same run, bit for bit.", "title")
    yield text(LEFT, 60, f"{what}: all {len(first) + len(second)} losses equal those of the "
                         "undisturbed run to the last bit.")
    yield from axes.drawn()
    yield from legend()
    yield axes.curve(whole, "whole")
    yield axes.curve(first, "first")
    yield axes.curve({begin: whole[begin], **twice}, "second twice")
    yield axes.curve(after, "second")
    yield f'<line class="second guide" x1="{bx}" x2="{bx}" y1="{mark}" y2="{by - 8}"/>'
    yield f'<circle class="dot" cx="{bx}" cy="{by}" r="6"/>'
    yield text(bx - 8, mark - 6, "typed again: goes on from", "second-text", "end")
    yield text(bx - 8, mark + 12, f"the checkpoint of step {begin}", "second-text", "end")
    yield f'<line class="kill guide" x1="{kx}" x2="{kx}" y1="{mark}" y2="{ky - 8}"/>'
    yield f'<path class="kill" d="M{kx - 7},{ky - 7}l14,14m0,-14l-14,14"/>'
    yield text(kx + 8, mark - 6, "kill -9", "kill-text")
    yield text(kx + 8, mark + 12, f"after step {kill}", "kill-text")
    yield "</svg>"


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    (first, second), (whole,) = losses(sys.argv[1]), losses(sys.argv[2])
    check(first, second, whole)
    lines = picture(first, second, whole, sys.argv[4])
    pathlib.Path(sys.argv[3]).write_text("\n".join(lines) + "\n")
    print(f"picture: {sys.argv[3]}, {len(first) + len(second)} losses compared")


if __name__ == "__main__":
    main()
