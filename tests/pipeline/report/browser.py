"""A page as Chromium shows it: measured from a page around it, for it has no script of its own."""

import html
import json
import re
import subprocess

from ...end_to_end.page import chromium

QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --no-pdf-header-footer --allow-file-access-from-files"
).split()

#: In an iframe of the width of a screen: what is wider than that, and not in a box that scrolls.
AROUND = """<!DOCTYPE html><body style="margin:0"><iframe id="page" src="{url}" width="{width}" height="{height}"
style="border:0"></iframe><pre id="seen"></pre><script>
document.getElementById("page").onload = (event) => {{
  const page = event.target.contentDocument, plots = [...page.querySelectorAll("figure > svg")];
  const wide = [...page.body.querySelectorAll("*")].filter((one) => !one.closest(".scroll table, svg")
    && one.getBoundingClientRect().right > {width} + 0.5).map((one) => one.outerHTML.slice(0, 80));
  const letters = plots.map((plot) => 9 * plot.getBoundingClientRect().width / plot.viewBox.baseVal.width);
  document.getElementById("seen").textContent = JSON.stringify({{
    width: page.documentElement.scrollWidth, scripts: page.scripts.length, plots: plots.length, wide: wide,
    title: page.title, text: page.body.textContent, letters: Math.min(...letters),
    shown: plots.filter((plot) => plot.getBoundingClientRect().height > 0).length,
    alternatives: page.querySelectorAll("figure > details table").length,
    interactive: page.querySelectorAll(".interactive-plot svg.main-svg .cartesianlayer").length,
    lines: [...page.querySelectorAll(".interactive-plot")].map((box) => box.querySelectorAll(".trace.scatter").length),
    requests: event.target.contentWindow.performance.getEntriesByType("resource").length,
    toggled: toggled(page)}});
}};
const toggled = (page) => {{
  const choice = page.getElementById("static-plots");
  if (choice === null) return 0;
  choice.click();
  return [...page.querySelectorAll("figure > svg")].filter((plot) => plot.getBoundingClientRect().height > 0).length;
}};
</script>"""


class Browser:
    """Runs once for each question, with a profile of its own."""

    def __init__(self, directory):
        self._directory = directory

    def seen(self, page, width, height):
        """What a screen of so many pixels shows of a page."""
        around = self._directory / "around.html"
        around.write_text(AROUND.format(url=page.as_uri(), width=width, height=height))
        told, faults = self._run(
            "--virtual-time-budget=10000", "--enable-logging=stderr", "--dump-dom", around.as_uri()
        )
        told = told.decode()
        found = re.search(r'<pre id="seen">(.+?)</pre>', told, re.DOTALL)
        assert found is not None, told[-2000:]
        answer = json.loads(html.unescape(found[1]))
        said = re.findall(r"^.*CONSOLE.*$", faults, re.MULTILINE)
        # the browser's own start page complains of a machine without a network
        answer["faults"] = [line for line in said if "source: chrome://" not in line]
        return answer

    def printed(self, page):
        """The page as PDF."""
        out = self._directory / "page.pdf"
        self._run(f"--print-to-pdf={out}", page.as_uri())
        return out.read_bytes()

    def _run(self, *arguments):
        program = chromium()
        assert program is not None
        profile = f"--user-data-dir={self._directory / 'profile'}"
        done = subprocess.run(
            [program, *QUIET, profile, *arguments],
            capture_output=True,
            timeout=120,
            check=True,
        )
        return done.stdout, done.stderr.decode(errors="replace")
