"""The page in a real browser, with real clicks: headless Chromium, from disk."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from graphc.frontend.language.load import load_module
from graphc.inspect.page import HtmlPage, history_of_graph, record, to_html
from graphc.inspect.page.document import document
from graphc.ir.graph import Graph
from graphc.strategies import parse_strategy

from .synthetic import synthetic

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
missing = [
    *([] if find_spec("selenium") else ["selenium (pip install 'graphc[browser]')"]),
    *([] if CHROMIUM else ["chromium"]),
    *([] if DRIVER else ["chromedriver"]),
]
pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(
        bool(missing), reason=f"NOT TESTED IN A BROWSER: no {', no '.join(missing)}"
    ),
]
DIGITS = Path(__file__).parents[3] / "examples" / "digits.gc"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--window-size=1500,950",
)  # fmt: skip


class Page:
    """A page that is open, and what a person does with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def run(self, script: str, *given: Any) -> Any:
        return self.driver.execute_script(script, *given)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def keys(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def move(self, x: float, y: float) -> Any:
        from selenium.webdriver import ActionChains
        from selenium.webdriver.common.actions.action_builder import ActionBuilder

        actions = ActionBuilder(self.driver, duration=0)
        actions.pointer_action.move_to_location(round(x), round(y))
        chain = ActionChains(self.driver)
        chain.w3c_actions = actions
        return chain

    def click(self, name: str, times: int = 1) -> None:
        """Click where a node, or the closed group around it, is drawn."""
        at = self.place(name)
        chain = self.move(at["x"], at["y"])
        for _ in range(times):
            chain.w3c_actions.pointer_action.click()
        chain.perform()

    def place(self, name: str) -> Any:
        return self.run("return graphcPage.place(arguments[0])", name)

    def panel(self) -> str:
        return str(self.one("#panel").text)

    def lit(self) -> set[str]:
        script = "return [...graphcPage.app.litNames].map((n) => graphcPage.data.strings[n])"
        return set(self.run(script))


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.binary_location = str(CHROMIUM)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        yield driver
        driver.quit()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    history = record(load_module(DIGITS), parse_strategy("mirrored(4)"))
    path = tmp_path_factory.mktemp("page") / "digits.html"
    path.write_text(to_html(history), encoding="utf-8")
    return path


@pytest.fixture
def page(driver: Any, file: Path) -> Iterator[Page]:
    """The page of the digits example; afterwards nothing was wrong and nothing was fetched."""
    driver.get_log("performance")  # what the browser did before
    driver.get(file.as_uri())
    yield Page(driver)
    assert driver.get_log("browser") == []
    requests = [x for x in driver.get_log("performance") if "Network.requestWillBeSent" in str(x)]
    fetched = re.compile('"url":"(?!file:|data:|chrome)')  # the browser's own first page is one
    assert not [x for x in requests if fetched.search(str(x["message"]))]


def test_a_click_on_a_node_shows_what_it_is_and_marks_its_line(page: Page) -> None:
    page.click("h")
    told = page.panel()
    assert "%h" in told and "maximum" in told and "f32[batch=256,128]" in told
    assert "FLOP" in told and "digits.gc:10" in told
    assert page.one("#code .chosen").get_attribute("data-line") == "10"


def test_a_line_lights_up_its_nodes_and_a_click_lists_them(page: Page) -> None:
    from selenium.webdriver import ActionChains

    row = page.one('#code div[data-line="14"]')
    ActionChains(page.driver).move_to_element(row).perform()
    assert "w1.m" in page.lit() and "h" not in page.lit()
    row.click()
    assert "nodes come from this line" in page.panel()


def test_the_slider_shows_what_a_pass_did(page: Page) -> None:
    stops = page.all("#stops li")
    next(li for li in stops if li.text.startswith("partition")).click()
    assert "partition" in page.one("#stage").text and "+14 added" in page.one("#stage").text
    page.one("#slider").send_keys("\ue012")  # left
    assert page.one("#stops [aria-current]").text.startswith("place")
    page.run("document.activeElement.blur()")
    page.keys("]", "]")
    assert page.one("#stops [aria-current]").text.startswith("cse")


def test_what_was_inserted_tells_why(page: Page) -> None:
    page.keys("/", "reduce_sum.5.data", "\ue007")
    told = page.panel()
    assert "all_reduce" in told and "because partition: data: P -> R, for %div.4" in told
    assert "768 B from each device" in told
    assert "partition added" in told
    page.one("#panel .because a").click()
    assert page.panel().startswith("%div.4")


def test_search_finds_what_is_in_closed_groups_and_opens_them(page: Page) -> None:
    page.one("#level").send_keys("model")
    page.run("document.activeElement.blur()")
    group = page.place("log")["group"]
    assert group >= 0
    page.keys("/", "log")
    assert page.all("#found li")
    page.keys("\ue015", "\ue013", "\ue007")  # down, up, enter
    assert page.place("log")["group"] == -1
    assert page.panel().startswith("%log")
    page.keys("\ue00c")
    assert page.panel().startswith("digits")


def test_a_group_opens_with_a_double_click_and_closes_with_enter(page: Page) -> None:
    assert page.place("log")["group"] >= 0
    page.click("log")
    assert "Open (Enter)" in page.panel()
    page.click("log", times=2)
    assert page.place("log")["group"] == -1
    assert "Close (Enter)" in page.panel()
    page.keys("\ue007")
    assert page.place("log")["group"] >= 0


def test_arrows_go_from_box_to_box(page: Page) -> None:
    page.click("h")
    page.keys("\ue015")
    below = page.panel().split("\n")[0]
    assert below != "%h"
    page.keys("\ue013")
    assert page.panel().startswith("%h")


def test_memory_shows_its_peak_and_what_is_alive_there(page: Page) -> None:
    page.keys("2")
    told = page.panel()
    assert "where memory is at its peak" in told and "ALIVE NOW" in told.upper()
    page.keys("\ue014")
    assert page.panel() != told


def test_devices_show_the_part_of_each_variable(page: Page) -> None:
    page.keys("3")
    assert len(page.all("#devices .card")) == 4
    assert "all_reduce" in page.one("#devices").text


def test_the_lowering_is_shown_with_what_each_stage_changed(page: Page) -> None:
    page.keys("4")
    assert "einsum.2, select.3" in page.one("#kernels").text
    for stage in ("side-by-side", "library", "row-tiling"):  # the last one first
        page.keys("[")
        assert page.one("#kernels h2").text.startswith(stage)
    assert (
        page.all("#kernels .add, #kernels .gone") or "0 lines are new" in page.one("#kernels").text
    )


def test_light_and_dark(page: Page) -> None:
    before = page.run("return getComputedStyle(document.body).backgroundColor")
    page.keys("d")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != before


def test_a_notebook_shows_the_page_in_a_frame(driver: Any, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    frame = HtmlPage(file.read_text(encoding="utf-8"))._repr_html_()
    path.write_text(f'<meta charset="utf-8"><p>Out[1]:</p>{frame}', encoding="utf-8")
    driver.get(path.as_uri())
    driver.switch_to.frame(driver.find_element("css selector", "iframe"))
    page = Page(driver)
    inside = (
        "const p = graphcPage.place('h'); return p.x > 0 && p.x < innerWidth && p.y < innerHeight"
    )
    assert page.run(f"await new Promise(requestAnimationFrame); {inside}")
    assert driver.get_log("browser") == []
    driver.switch_to.default_content()


def test_hostile_names_run_nothing(driver: Any, nasty: Graph, tmp_path: Path) -> None:
    path = tmp_path / "nasty.html"
    path.write_text(to_html(history_of_graph(nasty)), encoding="utf-8")
    driver.get(path.as_uri())
    page = Page(driver)
    page.keys("/", "tanh", "\ue007")
    script = "return document.getElementById('panel').textContent.includes(arguments[0])"
    assert page.run(script, "<script>alert(1)</script>")
    assert len(page.all("script")) == 2
    assert driver.get_log("browser") == []


@pytest.mark.parametrize("nodes, level, most", [(10_000, 2, 2.0), (100_000, 3, 5.0)])
def test_large_graphs_are_drawn_soon(
    driver: Any, tmp_path: Path, nodes: int, level: int, most: float
) -> None:
    path = tmp_path / "large.html"
    path.write_text(document(synthetic(nodes, level) | {"level": "ops"}), encoding="utf-8")
    start = time.monotonic()
    driver.get(path.as_uri())
    boxes = driver.execute_script("return graphcPage.app.scene.boxes.length")
    seconds = time.monotonic() - start
    assert boxes >= nodes / 10
    assert seconds < most
    assert driver.get_log("browser") == []
