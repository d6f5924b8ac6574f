"""The explorer's page, in a browser."""
from __future__ import annotations

import json
import re

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from soybean_mx import cli, core
from soybean_mx.model_loading import load
from soybean_mx.plan_command import STRATEGIES
from soybean_mx.plan_report import gibibytes, size
from tests.explorer.browser import asked_for, browser, complaints, open_page, prefer, require_browser

MODEL = ["alexnet", "--batch-size", "256", "--topology", "p2.8xlarge"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The page and the graph of a plan, and what --json says of it and of each strategy."""
    folder = tmp_path_factory.mktemp("explorer")
    page, dot = folder / "page.html", folder / "plan.dot"
    assert cli.main(["plan", *MODEL, "--html", str(page), "--dot", str(dot), "--json"]) == 0
    return page, dot


@pytest.fixture(scope="module")
def driver():
    require_browser()
    with browser() as found:
        yield found


@pytest.fixture
def opened(driver, files):
    """The page, just opened; no test may have left an error."""
    prefer(driver, "light")
    open_page(driver, files[0])
    yield driver
    assert complaints(driver) == []


def strategy(driver, name):
    driver.find_element(By.CSS_SELECTOR, f'#strategies input[value="{name}"]').click()


def node(driver, name):
    return driver.find_element(By.CSS_SELECTOR, f'.node[data-layer="{name}"]')


def said(driver, name):
    """What a screen reader says of a layer, which names its cut, its tiling and its bytes."""
    return node(driver, name).get_attribute("aria-label")


def printed(capsys, *arguments):
    assert cli.main(["plan", *MODEL, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_page_needs_no_network_and_logs_nothing(opened):
    assert asked_for(opened) == [] and complaints(opened) == []
    assert opened.title == "alexnet on 8 devices"
    source = opened.execute_script("return document.documentElement.outerHTML")
    assert not re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=", source)


def test_the_figures_are_those_of_the_command(opened, capsys):
    rows = {row.get_attribute("data-strategy"): row for row in opened.find_elements(By.CSS_SELECTOR, "tr.strategy")}
    assert tuple(rows) == STRATEGIES
    for found in printed(capsys, "--compare")["strategies"]:
        cells = [cell.text for cell in rows[found["strategy"]].find_elements(By.TAG_NAME, "td")]
        assert cells[1] == size(found["bytes_moved"]) and cells[-1] == size(found["peak_bytes_per_device"])
        assert cells[2] == f"{found['ratio_to_optimal']:.2f}"
    plan = printed(capsys)
    text = opened.find_element(By.ID, "plan").text
    assert f"bytes moved {size(plan['bytes_moved'])} a step (proved to be the least)" in text
    assert f"lower bound {size(plan['lower_bound_bytes'])}" in text
    peaks = [bar.get_attribute("data-peak") for bar in opened.find_elements(By.CSS_SELECTOR, "#memory g[data-peak]")]
    assert len(peaks) == 8 and peaks[0] == str(plan["memory"]["peak"]) == max(peaks, key=int)


def test_what_is_drawn_adds_up_to_what_moves(opened, capsys):
    """Lines and boxes together hold every byte of the plan that is not moved within an operator."""
    for found in printed(capsys, "--compare")["strategies"]:
        strategy(opened, found["strategy"])
        drawn = opened.execute_script("""
            const move = moves.get(state.strategy.name), {halo, statistics} = state.strategy.bytes;
            return halo + statistics + [move.edges, move.parameters, move.inner].reduce((sum, map) =>
                sum + [...map.values()].reduce((a, b) => a + b, 0), 0);""")
        assert drawn == found["bytes_moved"]


def test_another_strategy_is_drawn(opened, capsys):
    name = "alexnet0_dense0_fwd"
    plan = printed(capsys, "--strategy", "data")
    moved = next(item["bytes"] for item in plan["conversions"] if item["tensor"] == "alexnet0_dense0_weight")
    before = node(opened, name).get_attribute("innerHTML")
    strategy(opened, "data")
    assert node(opened, name).get_attribute("innerHTML") != before
    assert "cut n ×8" in said(opened, name) and "result split 0 ×8" in said(opened, name)
    assert size(moved) in node(opened, name).find_element(By.CSS_SELECTOR, ".moved").text
    assert opened.find_element(By.CSS_SELECTOR, "#steps .line").text.startswith("Time line\ndata: ")
    width = float(node(opened, name).find_element(By.CSS_SELECTOR, ".pipe").value_of_css_property("stroke-width")[:-2])
    other = float(node(opened, "alexnet0_conv0_fwd").find_element(
        By.CSS_SELECTOR, ".pipe").value_of_css_property("stroke-width")[:-2])
    assert width > 3 * other > 0


def test_search_finds_layers(opened):
    opened.find_element(By.TAG_NAME, "body").send_keys("/")
    field = opened.switch_to.active_element
    assert field.get_attribute("type") == "search"
    field.send_keys("dense1")
    found = opened.find_elements(By.CSS_SELECTOR, ".node.found")
    assert [item.get_attribute("data-layer") for item in found] == ["alexnet0_dense1_fwd"]
    assert opened.find_element(By.CSS_SELECTOR, "#search output").text.startswith("1 of ")
    field.send_keys(Keys.ENTER)
    assert opened.find_element(By.CSS_SELECTOR, "#layer h2").text == "dense1"
    box, place = (item.rect for item in (found[0], opened.find_element(By.ID, "graph")))
    assert place["x"] <= box["x"] and box["x"] + box["width"] <= place["x"] + place["width"]
    assert place["y"] <= box["y"] and box["y"] + box["height"] <= place["y"] + place["height"]
    field.send_keys(Keys.ESCAPE)
    assert opened.find_elements(By.CSS_SELECTOR, ".node.found") == []
    field.send_keys("no such layer")
    assert opened.find_element(By.CSS_SELECTOR, "#search output").text.startswith("0 of ")


def test_the_keyboard_goes_through_the_graph(opened):
    opened.execute_script("graph.focus(layers[0])")
    names = []
    for _ in range(3):
        opened.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
        names.append(opened.switch_to.active_element.get_attribute("data-layer"))
    assert names == ["alexnet0_conv0_fwd", "alexnet0_conv1_fwd", "alexnet0_conv2_fwd"]
    opened.switch_to.active_element.send_keys(Keys.ARROW_UP)
    active = opened.switch_to.active_element
    assert active.get_attribute("data-layer") == "alexnet0_conv1_fwd" and active.get_attribute("tabindex") == "0"
    assert active.find_element(By.CSS_SELECTOR, ".box").value_of_css_property("stroke-width") == "4px"  # visible focus
    active.send_keys(Keys.ENTER)
    assert opened.find_element(By.CSS_SELECTOR, "#layer h2").text == "conv1"
    opened.switch_to.active_element.send_keys("]")
    assert opened.execute_script("return state.strategy.name") == "data"  # behind the last comes the first
    opened.switch_to.active_element.send_keys("[")
    assert opened.execute_script("return state.strategy.name") == "optimal"
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert opened.find_element(By.ID, "layer").text == ""
    assert opened.switch_to.active_element.get_attribute("data-layer") == "alexnet0_conv1_fwd"
    scale = opened.execute_script("return d3.zoomTransform(graph.svg.node()).k")
    opened.switch_to.active_element.send_keys("+")
    assert opened.execute_script("return d3.zoomTransform(graph.svg.node()).k") > scale
    opened.switch_to.active_element.send_keys("?")
    assert "Keys" in opened.find_element(By.ID, "keys").text
    opened.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not opened.find_element(By.ID, "keys").is_displayed()


def test_all_that_acts_has_a_name(opened):
    strategy(opened, "data")
    opened.execute_script("change({layer: layers[3]})")
    nameless = opened.execute_script("""

        const all = 'button, input, [role=button], [role=img], canvas, aside, section[aria-label]';
        const named = (item) => item.getAttribute('aria-label') || item.textContent.trim() || item.closest('label');
        return [...document.querySelectorAll(all)].filter((item) => !named(item)).map((item) => item.outerHTML);""")
    assert nameless == []


def test_dark_and_light(opened):
    def shade():
        color = opened.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        return sum(int(part) for part in re.findall(r"\d+", color)[:3])

    assert shade() > 600
    prefer(opened, "dark")
    WebDriverWait(opened, 10).until(lambda _: shade() < 150)
    assert opened.find_element(By.ID, "scheme").text == "Light"
    opened.find_element(By.ID, "scheme").click()
    assert shade() > 600  # what was chosen holds, whatever the system prefers
    prefer(opened, "light")
    opened.find_element(By.ID, "scheme").click()
    assert shade() < 150


@pytest.mark.parametrize("name, devices, seed", [("alexnet", 8, 1), ("alexnet", 6, 2), ("alexnet", 12, 3)])
def test_tiles_are_where_the_lowering_has_them(opened, name, devices, seed):
    graph = load(name, 50).graph
    plan = core.plan(graph, {"devices": devices, "strategy": f"random:{seed}"})
    lowered = core.lower(graph, plan)
    held = {}
    for item in lowered["variables"]:
        held.setdefault(item["source"], []).append([item["device"], item["begin"], item["end"]])
    for tensor, regions in held.items():
        drawn = opened.execute_script(
            "return regionsOf(...arguments).map(({device, begin, end}) => [device, begin, end])",
            graph["shapes"][tensor][0], plan["tensors"][tensor], plan["cuts"])
        distinct = {tuple(map(tuple, item[1:])) for item in drawn}
        assert sorted(map(str, regions)) == sorted(map(str, drawn)) or (
            # An input that several devices hold is fed to those only that need it.
            distinct >= {tuple(map(tuple, item[1:])) for item in regions}), tensor


def test_pictures_number_tiles_by_device_and_mark_replicas(opened):
    def drawn(shape, tiling):
        return opened.execute_script("""
            const place = graph.canvas.append('g');
            drawTiles(place, 200, 100, arguments[0], arguments[1], [2, 2]);
            const found = [...place.node().querySelectorAll('text')];
            const at = (item, name) => Math.round(Number(item.getAttribute(name)));
            found.sort((a, b) => at(a, 'y') - at(b, 'y') || at(a, 'x') - at(b, 'x'));
            place.remove();
            return found.map((item) => item.textContent);""", shape, tiling)

    assert drawn([8, 8], ["split 0", "split 1"]) == ["0", "1", "2", "3"]
    assert drawn([8, 8], ["split 0", "split 0"]) == ["0", "2", "1", "3"]  # the last cut divides first
    assert drawn([8, 8], ["split 1", "replicated"]) == ["0-1", "2-3"]
    assert drawn([8, 8], ["replicated", "replicated"]) == ["0-3"]
    assert drawn([8, 8], ["owner", "split 0"]) == ["0", "1"]
    assert drawn([8, 8], ["partial", "split 0"]) == ["Σ 0,2", "Σ 1,3"]


def test_figures_are_written_as_the_command_writes_them(opened):
    counts = [0, 1, 1023, 1024, 1536, 10 ** 6, 123456789, 7748022464, 3 << 40]
    assert opened.execute_script("return arguments[0].map(sizeText)", counts) == [size(count) for count in counts]
    assert gibibytes(7748022464) == opened.execute_script("return sizeText(7748022464)")


def test_the_graph_for_graphviz_is_well_formed(opened, files, capsys):
    """Graphviz itself, which is in the page, reads it."""
    laid_out = opened.execute_async_script("""
        const [text, done] = arguments;
        Viz.instance().then((viz) => done(viz.renderJSON(text)), (error) => done(String(error)));""",
                                           files[1].read_text())
    assert isinstance(laid_out, dict), laid_out
    plan = printed(capsys)
    names = {item["name"]: item for item in laid_out["objects"]}
    red = [item for item in laid_out["edges"] if item.get("color") == "#c2410c"]
    assert "alexnet0_dense0_weight" in " ".join(names) and laid_out["label"].startswith("alexnet on 8 devices")
    moved = [item for item in plan["conversions"] if item["bytes"]]
    assert 0 < len(red) <= len(moved) and all(size(item["bytes"]) in " ".join(edge["label"] for edge in red)
                                              for item in moved if item["tensor"].endswith("weight"))
