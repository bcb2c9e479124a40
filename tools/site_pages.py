"""What the site shows besides docs/: pages that lie elsewhere in the repository, and where links to these lead."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = "docs"
# Where in the repository -> page of the site.
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "src/superfeat/shipped/fire-landmarks-3/README.md": "model-card.md",
    "src/superfeat/shipped/fire-small-1/README.md": "model-card-small.md",
}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, and the results of the benchmarks as files."""
    for place, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / place)))
    for result in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        files.append(File.generated(config, f"results/{result.name}", abs_src_path=str(result)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are those of the repository, where they work as well; here they lead to the site's pages."""
    place = next((where for where, name in PAGES.items() if name == page.file.src_uri), None)
    folder = posixpath.dirname(place or f"{DOCS}/{page.file.src_uri}")
    return LINK.sub(lambda found: site_link(found[1], folder), markdown)


def site_link(link: str, folder: str) -> str:
    """Where a link in a file of `folder` leads on the site; all pages lie at its top."""
    target = posixpath.normpath(posixpath.join(folder, link))
    if target in PAGES:
        return PAGES[target]
    if target == "benchmarks/results":
        return PAGES["benchmarks/README.md"]
    if target.startswith("benchmarks/results/"):
        return target.removeprefix("benchmarks/")
    return posixpath.relpath(target, DOCS)
