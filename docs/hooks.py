"""What the manual adds to Sphinx: files of the repository as pages, pictures of the examples, formulas as MathML."""

import re
import shutil
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx_gallery.scrapers import figure_rst
from sphinx_gallery.sorting import ExampleTitleSortKey
from sphinx_gallery.utils import scale_image

logger = logging.getLogger(__name__)

DOCS = Path(__file__).parent
ROOT = DOCS.parent
EXAMPLES = ROOT / "examples"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
# Pages that show a file of the repository, which other pages link to by its path there.
PAGES = {
    "changes": "CHANGELOG.md",
    "contributing": ".github/CONTRIBUTING.md",
    "security": "SECURITY.md",
    "measurements": "benchmarks/README.md",
}
LINK = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


def described_pictures() -> dict[str, str]:
    """Return the description of each picture, by the name of its example."""
    text = (EXAMPLES / "PICTURES.md").read_text(encoding="utf-8")
    return {name: " ".join(words.split()) for words, name in re.findall(r"!\[([^\]]+)\]\(pictures/(\w+)\.png\)", text)}


# Examples that make their own rows, in the order of the gallery; the others need files, or a broker.
RUNNABLE = [name for name in described_pictures() if (EXAMPLES / f"{name}.py").exists()]


def collect_pictures(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Take the pictures that an example saved, in the folder that it ran in, into its page."""
    del block
    found = []
    for picture in sorted(EXAMPLES.glob("*.png")):
        path = Path(next(block_vars["image_path_iterator"]))
        shutil.move(picture, path)
        found.append(str(path))
    rst: str = figure_rst(found, gallery_conf["src_dir"])
    return rst


def to_page(target: str, folder: Path) -> str:
    """Return where a relative link of a file in `folder` leads: to a page of the manual, or to the repository."""
    path = (folder / target).resolve()
    if not path.is_relative_to(ROOT) or path.suffix == ".png":
        return target
    name = path.relative_to(ROOT).as_posix()
    page = next((page for page, shown in PAGES.items() if shown == name), None)
    if page is not None:
        return f"{page}.md"
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    if path.parent == EXAMPLES and path.stem != "make_pictures":
        return f"gallery/{path.stem.replace('README', 'index')}.rst"
    return f"{URLS['Source']}/blob/main/{name}"


def read_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Show files of the repository as pages, and let links between files be links between pages."""
    if docname.startswith("gallery/"):
        source[0] = with_picture(docname.removeprefix("gallery/"), source[0])
    if "/" in docname:
        return
    folder = DOCS
    if docname in PAGES:
        path = ROOT / PAGES[docname]
        app.env.note_dependency(path)
        source[0], folder = path.read_text(encoding="utf-8"), path.parent
    source[0] = LINK.sub(lambda link: f"{link[1]}{to_page(link[2], folder)}{link[3]}", source[0])


def with_picture(name: str, text: str) -> str:
    """Put the stored picture of an example under the title of its page, unless the example was run and drew its own."""
    description = described_pictures().get(name)
    if description is None or f"sphx_glr_{name}_001" in text:
        return text
    picture = f"\n.. image:: /../examples/pictures/{name}.png\n   :alt: {description}\n   :class: picture\n\n"
    return re.sub(r"(\n={3,}\n)", lambda line: line[1] + picture, text, count=1)


class RunnableFirst(ExampleTitleSortKey):
    """Order of the gallery: examples that make their own rows, then those that need data of their own, by title."""

    def __call__(self, filename: str) -> tuple[int, str]:
        """Return what a file is sorted by."""
        order = [f"{name}.py" for name in RUNNABLE]
        return order.index(filename) if filename in order else len(order), super().__call__(filename)


def draw_thumbnails(app: Sphinx) -> None:
    """Make the gallery's small pictures from the stored ones."""
    for thumbnail in Path(app.srcdir, "gallery", "images", "thumb").glob("*.png"):
        name = thumbnail.stem.removeprefix("sphx_glr_").removesuffix("_thumb")
        if name in described_pictures():
            scale_image(str(EXAMPLES / "pictures" / f"{name}.png"), str(thumbnail), 400, 280)
        else:
            plain = Image.new("RGB", (400, 280), "white")
            ImageDraw.Draw(plain).text((200, 140), "no picture", "#767676", ImageFont.load_default(40), anchor="mm")
            plain.save(thumbnail)


def mend_roles(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Replace the roles that docutils gives references: a list's children must be its items."""
    del app, pagename, templatename, doctree
    if "body" in context:
        context["body"] = context["body"].replace('role="doc-biblioentry"', 'role="listitem"')


def write_math(writer: Any, node: nodes.math) -> None:
    """Write a formula of a line as MathML, which browsers show without a script."""
    writer.body.append(tex2mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def write_equation(writer: Any, node: nodes.math_block) -> None:
    """Write a formula of its own as MathML, with its number if it has one."""
    writer.body.append(writer.starttag(node, "div", CLASS="equation", tabindex="0"))
    writer.body.append(tex2mathml(node.astext(), as_block=True))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({node["number"]})</span>')
    writer.body.append("</div>")
    raise nodes.SkipNode


class Links(HTMLParser):
    """Collects the anchors of a page, and where its links and pictures lead."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the anchors and targets of an element."""
        del tag
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and not re.match(r"[a-z]+:|//|#$", value):
                self.targets.add(unquote(value))


def check_links(app: Sphinx, exception: Exception | None) -> None:
    """Warn of links within the built site that lead nowhere; Sphinx checks only those that it makes itself."""
    if exception is not None or app.builder.name != "html":
        return
    site = Path(app.outdir)
    pages = {path.resolve(): Links(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    for page, links in pages.items():
        for target in sorted(links.targets):
            name, _, anchor = target.partition("#")
            path = (page.parent / name.partition("?")[0]).resolve() if name else page
            path = path / "index.html" if path.is_dir() else path
            if not path.exists() or (anchor and path in pages and anchor not in pages[path].anchors):
                logger.warning("%s: the link %s leads nowhere", page.relative_to(site.resolve()), target)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what this file adds to Sphinx."""
    app.connect("source-read", read_page)
    app.connect("html-page-context", mend_roles)
    # After the gallery was made.
    app.connect("builder-inited", draw_thumbnails, priority=900)
    app.connect("build-finished", check_links)
    app.add_html_math_renderer("mathml", (write_math, None), (write_equation, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
