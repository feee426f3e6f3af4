"""`tileir-sim --trace` and `--report`."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.simulator.simulator_compile import from_ir
from tests.simulator.timing.test_perfetto import check_format
from tests.tools.test_sim import AXPY, axpy
from tileir.tools.sim import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", params=["gfx942", "gfx950"])
def hsaco(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("forms") / "k.hsaco"
    file.write_bytes(from_ir(AXPY, request.param))
    return str(file)


class Page(HTMLParser):
    """Text of a page; AssertionError where tags are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_trace_and_report(hsaco: str, tmp_path: Path, capsys: Capture) -> None:
    trace, report, summary = tmp_path / "t.json", tmp_path / "r.html", tmp_path / "s.json"
    command = axpy(hsaco, "--time", "--trace", str(trace), "--report", str(report), "--json", str(summary))
    assert main(command) == 0
    timing = json.loads(summary.read_text())["timing"]
    assert "estimated" in capsys.readouterr().out

    events = check_format(trace.read_text())
    slices = [e for e in events if e["ph"] == "X"]
    assert {"s_endpgm"} <= {e["name"] for e in slices}
    assert any(e["name"].startswith("global_load") for e in slices)
    assert any(e["cat"] == "stall" and e["name"] == "waits for vmcnt" for e in slices)
    assert max(e["ts"] + e["dur"] for e in slices) * 1000 <= timing["cu"]["clocks"] + 1
    assert next(e["args"]["name"] for e in events if e["name"] == "thread_name").startswith("workgroup 0 wave 0")

    page = Page()
    text = report.read_text()
    page.feed(text)
    assert not page.open
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert not [a for a in page.attributes if a[0] in ("src", "href")]
    assert "url(" not in text
    assert "http" not in text
    assert "Everything on this page is estimated" in page.text
    assert f"{timing['clocks']:.0f} clocks" in page.text
    assert "waits for vmcnt" in page.text
    assert re.search(r"global_load_dword \S+", page.text)
    assert f">{timing['total']['clocks']}<" in text


def test_they_are_the_same_each_time(hsaco: str, tmp_path: Path) -> None:
    texts = set()
    for name in ("a", "b"):
        trace, report = tmp_path / f"{name}.json", tmp_path / f"{name}.html"
        assert main(axpy(hsaco, "--trace", str(trace), "--report", str(report))) == 0
        texts.add((trace.read_text(), report.read_text()))
    assert len(texts) == 1


def test_files_that_cannot_be_written(hsaco: str, tmp_path: Path, capsys: Capture) -> None:
    assert main(axpy(hsaco, "--report", str(tmp_path / "none" / "r.html"))) != 0
    assert "r.html" in capsys.readouterr().err


def test_no_trace_of_a_kernel_that_faults(hsaco: str, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    assert main(axpy(hsaco, "--trace", str(trace), y="ones:f32:90")) == 1
    assert not trace.exists()
