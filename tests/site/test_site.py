"""The pages that `make site` has built, as a browser without a network would find them."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.skipif(
    "A2A_GATEWAY_SITE" not in os.environ, reason="`make site` builds what is looked at here"
)

SITE = Path(__file__).parents[2] / "build" / "site"
_ASKED_FOR = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "audio": "src",
    "video": "src",
    "link": "href",
}
_IN_STYLES = re.compile(r"""(?:url\(|@import)\s*["']?(\w+://|//)[^)"']*""")


@dataclass
class Page(HTMLParser):
    """ids: what a link can lead to; links: where it leads itself; requests: what a browser gets to show it."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids.update(value for name in ("id", "name") if (value := given.get(name)))
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        if request := given.get(_ASKED_FOR.get(tag, "")):
            self.requests.append(request)


def pages() -> list[Path]:
    return sorted(SITE.rglob("*.html"))


@cache
def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def is_foreign(address: str) -> bool:
    return bool(urlsplit(address).scheme or urlsplit(address).netloc) and not address.startswith("data:")


def broken(path: Path) -> Iterator[str]:
    for link in read(path).links:
        target = urlsplit(link)
        if target.scheme or target.netloc:
            continue
        found = (path.parent / unquote(target.path)).resolve() if target.path else path
        if not found.is_file():
            yield f"{path.relative_to(SITE)}: {link}: no such file"
        elif target.fragment and found.suffix == ".html" and unquote(target.fragment) not in read(found).ids:
            yield f"{path.relative_to(SITE)}: {link}: no such place"


def test_every_link_leads_to_a_file_and_a_place_that_are_there() -> None:
    assert len(pages()) > 80
    assert [line for path in pages() for line in broken(path)] == []


def test_a_page_asks_no_other_host_for_anything() -> None:
    foreign = [(path.name, one) for path in pages() for one in read(path).requests if is_foreign(one)]
    styles = [(path.name, found[0]) for path in SITE.rglob("*.css") if (found := _IN_STYLES.search(path.read_text()))]
    assert (foreign, styles) == ([], [])


def test_the_search_knows_the_pages_and_needs_no_server() -> None:
    index = (SITE / "searchindex.js").read_text(encoding="utf-8")
    assert "docs/operations" in index
    assert "searchindex.js" in " ".join(read(SITE / "search.html").requests)
