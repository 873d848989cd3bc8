"""Hooks of the documentation site (mkdocs.yml): pages whose text stands elsewhere in the repository, and their links.

A page is written once, where GitHub shows it. The site has the READMEs as pages of its own; links between files of the
repository become links between pages, and a link to a file that the site doesn't have stays as text.
"""

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).resolve().parents[1]
SYSTEMS = ("videozoomer", "framethinker", "framemind", "videobrain", "eva", "longvt", "timesearch", "paravt", "videoo3")
EXAMPLES = ("custom_tool", "custom_reward", "custom_family", "ray_job")
PAGES: Mapping[str, str] = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "docker.md": "docker/README.md",
    **{f"systems/{name}.md": f"recipes/{name}/README.md" for name in SYSTEMS},
    **{f"examples/{name}.md": f"examples/{name}/README.md" for name in EXAMPLES},
}
"""Pages of the site by file of the repository."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ONLY_ON_GITHUB = re.compile(r"<!-- github -->.*?<!-- /github -->\n*", re.DOTALL)
ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([\w.]+)(?:\(\))?</code>")
FLOWCHART = re.compile(r"```mermaid\nflowchart TD\n(.*?)```", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that aren't in the docs folder."""
    for uri, source in PAGES.items():
        files.append(File.generated(config, uri, content=(REPOSITORY / source).read_text(encoding="utf-8")))
    for name in parts():
        text = f"# agentic_video.{name}\n\n::: agentic_video.{name}\n"
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out what only GitHub shows, and point links at pages."""
    uri = page.file.src_uri
    text = FLOWCHART.sub(lambda found: layers_html(found[1]), ONLY_ON_GITHUB.sub("", markdown))
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda found: link(found, uri, files), part)
        for part in re.split(r"(^```.*?^```$)", text, flags=re.DOTALL | re.MULTILINE)
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links of the names that docstrings mark with a role."""
    return ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)


def parts() -> list[str]:
    """The package's subpackages and modules: a reference page each."""
    found = [path for path in (REPOSITORY / "agentic_video").iterdir() if (path / "__init__.py").is_file()]
    found += (REPOSITORY / "agentic_video").glob("[!_]*.py")
    return sorted(path.stem for path in found)


def link(found: "re.Match[str]", uri: str, files: Files) -> str:
    """A link as the site has it."""
    mark, text, target = found.groups()
    path, hash_, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return found[0]
    source = PAGES.get(uri, f"docs/{uri}")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    there = next(
        (page for page, file in PAGES.items() if file in (wanted, f"{wanted}/README.md")),
        wanted.removeprefix("docs/") if wanted.startswith("docs/") else None,
    )
    if there is None or (there not in PAGES and files.get_file_from_path(there) is None):
        # A broken link is for mkdocs to complain about; a file that is only in the repository stays as text.
        return text if (REPOSITORY / wanted).exists() else found[0]
    return f"{mark}[{text}]({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{hash_}{anchor})"


def layers_html(flowchart: str) -> str:
    """The drawing of the package's parts as rows of boxes: each imports from rows below its own only."""
    boxes = dict(re.findall(r'^ *(\w+)\["(.*?)"\]$', flowchart, re.MULTILINE))
    arrows = re.findall(r"^ *(\w+) --> (\w+)$", flowchart, re.MULTILINE)
    height = dict.fromkeys(boxes, 0)
    for _ in boxes:  # the longest way down decides the row
        for upper, lower in arrows:
            height[upper] = max(height[upper], height[lower] + 1)
    linked = {box for arrow in arrows for box in arrow}
    height.update((box, len(boxes)) for box in boxes if box not in linked)  # the command imports what it is asked for
    rows = [[box for box in boxes if height[box] == level] for level in sorted(set(height.values()), reverse=True)]

    def span(box: str) -> str:
        name, _, lines = boxes[box].partition("<br/>")
        return f'<span><a href="reference/{box}.html">{name}</a><br><small>{lines}</small></span>'

    inner = "".join(f"<div>{''.join(span(box) for box in row)}</div>" for row in rows)
    return f'<div class="layers">{inner}</div>'
