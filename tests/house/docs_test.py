"""docs/troubleshooting.md explains every area of an error; links between pages lead somewhere."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import house

sys.path.insert(0, str(house.ROOT / "tools"))
import docs_site  # noqa: E402
import predicted_rows  # noqa: E402

AREAS = (
    re.compile(r'\b(?:Input|Config|Temporary)Error\s*[({]\s*"([^"]+)"'),
    re.compile(r'\bError\s*[({]\s*ErrorKind::\w+,\s*"([^"]+)"'),
    re.compile(r'\bLH_CHECK\((?:[^;"]|"(?=[^,]*"))*?,\s*"([a-z ]+)",'),
    re.compile(r'\b(?:kArea\w*(?:\[\])?|std::string area)\s*=\s*"([^"]+)"'),
)


def areas_of_the_code():
    """area -> a file that uses it."""
    found = {}
    for name in house.files(*house.CODE):
        if not name.startswith(("longhaul/", "apps/")) or name.endswith("_test.cpp"):
            continue
        for pattern in AREAS:
            for area in pattern.findall(house.text(name)):
                found.setdefault(area, name)
    return found


def areas_of_the_table():
    table = house.text("docs/troubleshooting.md").split("## What an area means")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`\[.*?) \|", table, re.M)
    return [area for row in rows for area in re.findall(r"`\[([^\]]+)\]`", row)]


def links(name):
    """(target file, anchor) of each relative link."""
    folder = name.rsplit("/", 1)[0] + "/" if "/" in name else ""
    for target in re.findall(r"\]\(([^)\s]+)\)", house.text(name)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield (folder + path if path else name), anchor


def anchors(name):
    heads = re.findall(r"^#+ (.+)$", house.text(name), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


class Areas(unittest.TestCase):
    def test_every_area_of_an_error_is_explained_once(self):
        code, table = areas_of_the_code(), areas_of_the_table()
        self.assertGreater(len(code), 40)
        missing = {area: name for area, name in code.items() if area not in table}
        self.assertEqual({}, missing, "add them to docs/troubleshooting.md")
        self.assertEqual(len(table), len(set(table)), "an area stands twice")


class Site(unittest.TestCase):
    def test_every_page_has_its_reader_on_the_site(self):
        self.assertEqual([], docs_site.unread(), "add them to READERS of tools/docs_site.py")

    def test_the_list_of_pages_has_the_groups_of_the_site_in_their_order(self):
        groups = {}
        for part in house.text("docs/README.md").split("\n## ")[1:]:
            groups[part.split("\n", 1)[0]] = re.findall(r"^\| \[([a-z-]+)\]", part, re.M)
        self.assertEqual(["contributing", "security", "changelog"], groups.pop("Project"))
        self.assertEqual(docs_site.READERS, groups)

    def test_the_front_page_says_how_to_start_and_what_is_not_there(self):
        start, table = docs_site.front_page()
        for words in ("pip install", "longhaul train", "## Not there yet"):
            self.assertIn(words, start)
        self.assertIn("| page |", table)

    def test_the_search_shows_pages_for_users_before_those_of_the_project(self):
        boosts = docs_site.boosts()
        self.assertGreater(boosts["running.md"], boosts["reliability.md"])
        self.assertGreater(boosts["adding.md"], docs_site.ELSEWHERE)


class PredictedRows(unittest.TestCase):
    def test_the_table_of_planning_has_the_rows_of_the_file_with_their_published_figures(self):
        page = house.text("docs/planning.md")
        table = page.split(predicted_rows.BEGIN)[1].split(predicted_rows.END)[0]
        found = [line for line in table.splitlines() if "][" in line]
        rows = predicted_rows.read_rows()
        self.assertEqual(len(rows), len(found), "run tools/predicted_rows.py")
        for row, line in zip(rows, found):
            self.assertTrue(line.startswith(f"| {predicted_rows.told(row)} | "), line)
            self.assertEqual(row.get("comparison_only", False), line.endswith("| yes |"), line)
            self.assertEqual("not_counted" in row, "not counted: " in line, line)
            self.assertNotIn("refused: ", line)
            self.assertIn(f"\n[{predicted_rows.SOURCES.index(row['source'])}]: {row['source']}\n", table)
            self.assertTrue((house.ROOT / f"hardware/{row['hardware']}.toml").exists(), line)
            self.assertTrue((house.ROOT / f"recipes/{row['recipe']}.toml").exists(), line)


class Release(unittest.TestCase):
    def test_the_version_is_the_same_in_all_places_and_has_a_day_once_it_is_tagged(self):
        version = re.search(r"project\(longhaul VERSION (\S+)", house.text("CMakeLists.txt")).group(1)
        newest, day = re.search(r"^## (\S+) \((.+)\)$", house.text("CHANGELOG.md"), re.M).groups()
        cited = dict(re.findall(r"^(version|date-released): (\S+)$", house.text("CITATION.cff"), re.M))
        self.assertEqual([version, version], [newest, cited["version"]])
        self.assertEqual(None if day == "unreleased" else day, cited.get("date-released"))
        tags = subprocess.run(["git", "-c", f"safe.directory={house.ROOT}", "tag", "--points-at", "HEAD", "v*"],
                              cwd=house.ROOT, capture_output=True, text=True).stdout.split()
        if tags:
            self.assertEqual([f"v{version}"], tags)
            self.assertNotEqual("unreleased", day)

    def test_a_build_names_the_commit_of_a_clone_and_of_an_archive_and_never_that_of_another(self):
        script = house.text("cmake/write_commit.cmake")
        self.assertIn("write_commit.cmake export-subst", house.text(".gitattributes"))
        with tempfile.TemporaryDirectory() as folder:
            def git(*words):
                return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True,
                                      cwd=folder, capture_output=True, text=True).stdout.strip()

            def commit_at(place, text=script):
                path = pathlib.Path(folder, place)
                path.mkdir(exist_ok=True)
                (path / "write.cmake").write_text(text)
                subprocess.run(["cmake", f"-DSOURCE={path}", f"-DOUTPUT={path}/out.h", "-P",
                                path / "write.cmake"], check=True, capture_output=True)
                return re.search(r'LONGHAUL_COMMIT "(.*)"', (path / "out.h").read_text()).group(1)

            self.assertEqual("unknown", commit_at("."))
            git("init", "-q")
            git("commit", "-q", "--allow-empty", "-m", "x")
            commit = git("rev-parse", "--short=12", "HEAD")
            self.assertEqual(commit, commit_at("."))
            git("tag", "-a", "v9.9.9", "-m", "x")
            self.assertEqual(commit, commit_at("."))
            self.assertEqual("unknown", commit_at("unpacked"))
            self.assertEqual("5" * 12, commit_at("unpacked", script.replace("$Format:%H$", "5" * 40)))


class Links(unittest.TestCase):
    def test_every_link_between_our_pages_leads_somewhere(self):
        checked = 0
        for name in house.files(".md"):
            for path, anchor in links(name):
                parts = []
                for part in path.split("/"):
                    parts = parts[:-1] if part == ".." else parts + [part]
                path = "/".join(parts)
                self.assertTrue((house.ROOT / path).exists(), f"{name}: {path}")
                if anchor and path.endswith(".md"):
                    self.assertIn(anchor, anchors(path), f"{name}: {path}#{anchor}")
                checked += 1
        self.assertGreater(checked, 30)


if __name__ == "__main__":
    unittest.main()
