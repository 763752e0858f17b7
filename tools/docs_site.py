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
    "Start": ["tutorial", "features", "offline", "recipes"],
    "Run": ["running", "data", "watching", "checkpoints", "failures", "health", "troubleshooting"],
    "Understand": ["layouts", "experts", "devices", "numerics", "reliability", "benchmarks"],
    "Move here": ["migrating", "importing", "public-cases"],
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


def write_pages(folder):
    """Copies the pages. A link to a file that is no page becomes its name."""
    all_pages = pages()
    for path in all_pages:
        target = folder / place_of(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copy(path, target)
            continue

        def linked(match, path=path):
            where = match.group(2)
            if re.match(r"[a-z]+:|#", where):
                return match.group(0)
            file, anchor = re.match(r"([^#]*)(.*)", where).groups()
            goal = (path.parent / file).resolve()
            if goal in all_pages:
                up = "../" * (len(place_of(path).parts) - 1)
                return f"[{match.group(1)}]({up}{place_of(goal)}{anchor})"
            return match.group(1) if goal.exists() else match.group(0)

        target.write_text(re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", linked,
                                 path.read_text(encoding="utf-8")), encoding="utf-8")
    (folder / "README.md").rename(folder / "index.md")
    for page in folder.rglob("*.md"):
        page.write_text(re.sub(r"\]\(((?:\.\./)*)README\.md\)", r"](\1index.md)", page.read_text()))


def navigation():
    lines = ["  - Pages: index.md"]
    for reader, names in READERS.items():
        lines += [f"  - {reader}:", *(f"      - {name}.md" for name in names)]
    lines += ["  - Project:", "      - CONTRIBUTING.md", "      - SECURITY.md", "      - CHANGELOG.md"]
    return "\n".join(lines) + "\n"


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    named = sorted(name for names in READERS.values() for name in names)
    there = sorted(p.stem for p in (ROOT / "docs").glob("*.md") if p.stem != "README")
    if named != there:
        sys.exit(f"docs_site: pages without a reader, or readers without a page: "
                 f"{sorted(set(named) ^ set(there))}; see READERS")
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
