"""The documentation as a site: the strict build passes, every page is reached, and no page asks another site."""

import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from lxml import etree, html

from ..console.browser import ConsolePage, chromium, launch
from .source import ROOT

#: Pages of the site that are files of the checkout.
OF_THE_CHECKOUT = {"changes.md", "contributing.md", "security-policy.md"}

#: Elements that make a browser load something.
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, *_):
        pass


def named(part):
    """The pages in a part of the navigation of mkdocs.yml."""
    if isinstance(part, str):
        return [part]
    return [page for each in (part if isinstance(part, list) else part.values()) for page in named(each)]


def test_the_navigation_names_every_page_once():
    text = (ROOT / "mkdocs.yml").read_text()
    navigation = yaml.safe_load(text[text.index("\nnav:") :])["nav"]
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(named(navigation)) == sorted({*pages, *OF_THE_CHECKOUT})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly: links, anchors and the navigation are checked by MkDocs."""
    target = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    built = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    assert "WARNING" not in built.stdout
    return target


def pages(site):
    return {
        path.relative_to(site).as_posix(): html.fromstring(path.read_bytes())
        for path in sorted(site.rglob("*.html"))
        if path.name != "404.html"
    }


def article(page):
    (found,) = page.xpath("//article")
    return found


@pytest.mark.long
def test_every_page_is_in_the_navigation_and_leads_to_another(site):
    found = pages(site)
    navigation = found["index.html"].xpath("//nav[contains(@class, 'md-nav--primary')]//a/@href")
    assert found.keys() <= {str(target) for target in navigation} | {"index.html"}
    alone = [
        name
        for name, page in found.items()
        if not page.xpath("//a[contains(@class, 'md-footer__link')]")
        and not article(page).xpath(".//a[@href]")
    ]
    assert alone == []


@pytest.mark.long
def test_no_page_loads_anything_from_another_site(site):
    for name, page in pages(site).items():
        for element in page.iter(*LOADING):
            target = element.get(LOADING[element.tag])
            if target and element.get("rel") not in ("canonical", "next", "prev"):
                assert not re.match(r"(\w+:)?//", target), (name, etree.tostring(element))
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", style.read_text()), style


@pytest.mark.long
def test_no_markdown_is_left_over(site):
    """Fences and lists that GitHub shows, and the site would show as text."""
    for name, page in pages(site).items():
        body = article(page)
        for element in [*body.iter("pre", "code", "h1", "h2", "h3", "h4")]:
            element.text = ""
            for child in list(element):
                child.drop_tree()
        left = re.findall(
            r".*```.*|^\s*(?:[-*]|\d+\.) .*|^\|.*\|$|.*\]\(.*", body.text_content(), re.MULTILINE
        )
        assert left == [], name


@pytest.mark.long
@pytest.mark.timeout(500)  # a busy machine takes a while to make the index
def test_search_works_in_a_browser_without_requests_to_other_sites(site):
    """On a phone and on a desk; `ConsolePage` reports every request to another host and every error."""
    if chromium() is None:
        pytest.skip("Chromium is not installed")
    handler = partial(QuietHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, ExitStack() as opened:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        opened.callback(server.shutdown)
        browser = opened.enter_context(launch())
        for width in (1280, 390):
            tab = ConsolePage(browser, server.server_port, opened, viewport={"width": width, "height": 800})
            page = tab.open("index.html")
            if width < 1000:
                page.locator("label[for=__search]").first.click()
            result = page.locator("a.md-search-result__link").first
            search = page.locator("input.md-search__input")
            search.fill("AMQ_SCHEDULED_DELAY")
            # The page looks at the text when a key is released, the field gets the focus or the index is ready. Filling
            # is none of these: where the index is there before the text, only a key has it searched for.
            search.press("End")
            result.wait_for(state="attached", timeout=200_000)
            assert "protocol.html" in str(result.get_attribute("href"))
            result.click()
            page.wait_for_url("**/protocol.html**")
            assert tab.overflow() == 0
            tab.check()
