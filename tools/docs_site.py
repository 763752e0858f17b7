"""Makes the site of the documentation: pages by reader, with a search, in a folder without a network.

    tools/docs_site.py OUT        (make docs)

The pages are those of docs/, and the pages of other folders to which they link. A link that leads
nowhere, and an anchor that is not there, ends it with 1. It needs requirements-docs.txt.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What a reader wants, and the pages that serve it.
READERS = {
    "Start": ["tutorial", "tutorial-chat", "features", "offline", "recipes"],
    "Run": ["running", "planning", "adapters", "preferences", "data", "serve", "objects", "watching", "why", "checkpoints", "passport", "failures", "health", "troubleshooting"],
    "Understand": ["layouts", "experts", "devices", "trainium", "numerics", "reliability", "benchmarks"],
    "Move here": ["migrating", "importing", "gguf", "public-cases"],
    "Extend": ["tour", "adding", "testing"],
}
SETTINGS = """\
site_name: longhaul
site_description: Pretrains and continues to pretrain language models
use_directory_urls: false
docs_dir: {pages}
site_dir: {out}
theme:
  name: material
  font: false
  palette:
    - {{media: "(prefers-color-scheme: light)", scheme: default, primary: indigo}}
    - {{media: "(prefers-color-scheme: dark)", scheme: slate, primary: indigo}}
  features: [navigation.sections, navigation.top, search.highlight, content.code.copy]
plugins: [search]
validation:
  nav: {{omitted_files: ignore}}
  links: {{not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
markdown_extensions:
  - tables
  - toc: {{permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {{kwds: {{case: lower}}}}}}
  - pymdownx.superfences
nav:
"""
# Who types a word into the search most often wants a page for users.
BOOST = {"Start": 3, "Run": 3, "Understand": 1, "Move here": 2, "Extend": 0.5}
ELSEWHERE = 0.3
# What the front page takes of README.md, above the tables of pages.
OF_README = ["Start", "Not there yet"]
LINK = re.compile(r"\]\(([^)\s#]+)")


def targets(path):
    """The files of this tree to which a page links."""
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if not re.match(r"[a-z]+:", target):
            yield (path.parent / target).resolve()


def pages():
    """All pages and pictures of the site: those of docs/, and what they link to."""
    found, left = set(), sorted((ROOT / "docs").rglob("*.*"))
    while left:
        path = left.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        if path.suffix == ".md":
            left += [t for t in targets(path) if t.is_relative_to(ROOT) and t.suffix in (".md", ".svg")]
    return sorted(found)


def place_of(path):
    """Where a file lies in the site: docs/ is its root."""
    return path.relative_to(ROOT / "docs" if path.is_relative_to(ROOT / "docs") else ROOT)


def with_links(text, path, all_pages, at=None):
    """The text of the page at `path` with links as the site has them, on the page `at`."""
    up = "../" * (len(place_of(at or path).parts) - 1)

    def linked(match):
        where = match.group(2)
        if re.match(r"[a-z]+:|#", where):
            return match.group(0)
        file, anchor = re.match(r"([^#]*)(.*)", where).groups()
        goal = (path.parent / file).resolve()
        if goal in all_pages:
            return f"[{match.group(1)}]({up}{place_of(goal)}{anchor})"
        return match.group(1) if goal.exists() else match.group(0)

    return re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", linked, text)


def unread():
    """Pages that READERS lacks, and names in READERS that are no page."""
    named = {name for names in READERS.values() for name in names}
    return sorted(named ^ {p.stem for p in (ROOT / "docs").glob("*.md") if p.stem != "README"})


def boosts():
    """How the search weighs a page, by its place in the site."""
    return {f"{name}.md": BOOST[reader] for reader, names in READERS.items() for name in names}


def front_page():
    """What README.md says first, how to start, the limits, and the tables of pages."""
    start = (ROOT / "README.md").read_text(encoding="utf-8")
    head, *sections = re.split(r"^## ", start, flags=re.M)
    named = {section.split("\n", 1)[0]: section for section in sections}
    table = re.sub(r"^#", "##", (ROOT / "docs/README.md").read_text(encoding="utf-8"), flags=re.M)
    return head + "".join(f"## {named[name]}" for name in OF_README), table


def write_pages(folder):
    """Copies the pages. A link to a file that is no page becomes its name."""
    all_pages = pages()
    for path in all_pages:
        target = folder / place_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copy(path, target)
            continue

        boost = boosts().get(str(place_of(path)), ELSEWHERE)
        target.write_text(f"---\nsearch:\n  boost: {boost}\n---\n\n" + with_links(
            path.read_text(encoding="utf-8"), path, all_pages), encoding="utf-8")
    start, table = front_page()
    (folder / "README.md").unlink()
    (folder / "index.md").write_text(
        f"---\nsearch:\n  boost: {BOOST['Start']}\n---\n\n"
        + with_links(start, ROOT / "README.md", all_pages, at=ROOT / "docs/README.md")
        + with_links(table, ROOT / "docs/README.md", all_pages), encoding="utf-8")
    for page in folder.rglob("*.md"):
        page.write_text(re.sub(r"\]\(((?:\.\./)*)README\.md\)", r"](\1index.md)", page.read_text()))


def navigation():
    lines = ["  - Home: index.md"]
    for reader, names in READERS.items():
        lines += [f"  - {reader}:", *(f"      - {name}.md" for name in names)]
    lines += ["  - Project:", "      - CONTRIBUTING.md", "      - SECURITY.md", "      - CHANGELOG.md"]
    return "\n".join(lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    if unread():
        sys.exit(f"docs_site: {', '.join(unread())}: a page of docs/ without a place in READERS of "
                 "tools/docs_site.py, or a place without a page; give it one")
    with tempfile.TemporaryDirectory() as folder:
        sources = pathlib.Path(folder) / "pages"
        sources.mkdir()
        write_pages(sources)
        settings = pathlib.Path(folder) / "mkdocs.yml"
        settings.write_text(SETTINGS.format(pages=sources, out=out) + navigation())
        done = subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "-f", settings],
            env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        told = [line for line in done.stdout.splitlines() if line.startswith(("WARNING", "ERROR"))]
        sys.exit("\n".join(told) or done.stdout)
    print(f"docs: {len(list(out.rglob('*.html')))} pages in {out}; open {out / 'index.html'}")


if __name__ == "__main__":
    main()
