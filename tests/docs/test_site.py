"""The documentation as a site: it builds without a warning, is complete and asks no other host for anything."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests import rooms
from tests.docs.tables import REPOSITORY

pytestmark = pytest.mark.slow

MACHINE_PATHS = re.compile(r"(?<![\w.])/(?:root|home|tmp|work)/")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page's markup loads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.addresses.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.addresses.append(values.get("href") or "")


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert [address for address in loaded.addresses if re.match(r"(https?:)?//", address)] == [], page


def test_every_part_of_the_package_has_a_reference_page(site: Path) -> None:
    assert {page.stem for page in (site / "reference").glob("*.html")} == set(rooms.FLOOR_OF)
    page = (site / "reference" / "rollout.html").read_text(encoding="utf-8")
    assert 'id="agentic_video.rollout.episode.play"' in page and "Raises:" in page


def test_every_system_has_a_page_and_its_links_lead_to_pages(site: Path) -> None:
    assert {page.stem for page in (site / "systems").glob("*.html")} == {
        "videozoomer",
        "framethinker",
        "framemind",
        "videobrain",
        "eva",
        "videoo3",
        "paravt",
        "timesearch",
        "longvt",
    }
    page = (site / "systems" / "eva.html").read_text(encoding="utf-8")
    assert 'href="../fidelity/eva.html"' in page and 'href="videozoomer.html"' in page
    assert "README.md" not in re.sub(r"<code>.*?</code>", "", page)


def test_what_only_github_shows_is_left_out(site: Path) -> None:
    assert "img.shields.io" not in (site / "index.html").read_text(encoding="utf-8")


def test_the_layers_are_drawn(site: Path) -> None:
    page = (site / "architecture.html").read_text(encoding="utf-8")
    drawn = re.search(r'<div class="layers">(.*?)</div></div>', page)
    assert drawn
    rows = [re.findall(r"reference/(\w+)\.html", row) for row in drawn[1].split("</div>")]
    assert rows[0] == ["cli"] and rows[-1] == ["types", "utils"]
    assert {box for row in rows for box in row} == set(rooms.FLOOR_OF)


def test_what_a_block_needs_is_above_it(site: Path) -> None:
    assert '<span class="filename">needs GPUs</span>' in (site / "systems" / "eva.html").read_text(encoding="utf-8")


def test_the_viewer_s_demo_is_one_small_file_without_a_machine_s_paths(site: Path) -> None:
    demo = site / "viewer-demo.html"
    text = demo.read_text(encoding="utf-8")
    assert demo.stat().st_size < 2**20
    assert "Content-Security-Policy" in text and "What colour flashes" in text
    assert not MACHINE_PATHS.search(text)
    assert 'href="viewer-demo.html#g=0"' in (site / "quickstart.html").read_text(encoding="utf-8")
