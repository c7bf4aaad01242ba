"""The site: `make site`. Law: the pages are those of the project as they are, README and all, and no page asks another host for
anything.

The source is the folder of the project, so that a link between two pages, or to a file beside them, is the same here and there.
"""

from pathlib import Path

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

project = html_title = "A2A Gateway"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "bench/*.md", "docs/**.md", "examples/**.md"]
exclude_patterns = [".*", "bench/*/**", "build", "dist", "peers", "tests", "**/.*", "**/node_modules", "**/__pycache__"]

# Headings have the anchors that they have where the files are shown as they are.
myst_heading_anchors = 4

html_theme = "furo"
html_extra_path = ["index.html"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", _name_folders)


def _name_folders(app: Sphinx, page: nodes.document) -> None:
    """Leaves of links to folders of the project, which the site has no pages of, their text."""
    for link in list(page.findall(pending_xref)):
        if (Path(app.env.doc2path(app.env.docname)).parent / link["reftarget"]).is_dir():
            link.replace_self(link.children)
