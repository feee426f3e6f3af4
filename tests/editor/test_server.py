"""The language server end to end: a client speaks the protocol to the process over its standard input and output."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tileir.editor.server import offset_of, position

pytest.importorskip("pygls")
ROOT = Path(__file__).parents[2]
URI = "file:///k.tile"
TEXT = "tileir 1\nkernel @k(%A: global<f32[4]>) grid(1) {\n  // 🙂 grin\n  %x = load(%A[0 +: 4])\n  store(%x  +  %y, %A[0 +: 4])\n}\n"


class Client:
    """Requests and notifications with their frames."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tileir.editor.server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
        )
        self.number = 0
        self.notified: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        out = self.process.stdout
        assert out is not None
        length = 0
        while line := out.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return json.loads(out.read(length))

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: dict[str, Any]) -> Any:
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        while (message := self.receive()).get("id") != self.number or "method" in message:
            self.notified.append(message)
        assert "error" not in message, message
        return message["result"]

    def diagnostics(self) -> list[dict[str, Any]]:
        while True:
            for i, m in enumerate(self.notified):
                if m.get("method") == "textDocument/publishDiagnostics":
                    del self.notified[i]
                    return m["params"]["diagnostics"]
            self.notified.append(self.receive())

    def ask(self, method: str, line: int, character: int, **more: Any) -> Any:
        where = {"textDocument": {"uri": URI}, "position": {"line": line, "character": character}}
        return self.request(f"textDocument/{method}", {**where, **more})


@pytest.fixture
def client() -> Iterator[Client]:
    c = Client()
    c.request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
    c.notify("initialized", {})
    document = {"uri": URI, "languageId": "tile", "version": 1, "text": TEXT}
    c.notify("textDocument/didOpen", {"textDocument": document})
    yield c
    c.request("shutdown", {})
    c.notify("exit", {})
    assert c.process.wait(timeout=20) == 0


def test_a_session(client: Client) -> None:
    (fault,) = client.diagnostics()
    assert fault["code"] == "E0203" and fault["source"] == "tileir" and fault["severity"] == 1
    assert fault["range"] == {"start": {"line": 4, "character": 15}, "end": {"line": 4, "character": 17}}

    right = TEXT.replace("%y", "%x")
    change = {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": right}]}
    client.notify("textDocument/didChange", change)
    assert client.diagnostics() == []

    hover = client.ask("hover", 4, 9)
    assert "%x: tile<f32[4]>" in hover["contents"]["value"]
    assert client.ask("hover", 2, 6) is None
    place = client.ask("definition", 4, 9)
    assert place["range"]["start"] == {"line": 3, "character": 2}
    assert [
        r["range"]["start"]["line"] for r in client.ask("references", 4, 9, context={"includeDeclaration": True})
    ] == [3, 4, 4]
    edits = client.ask("rename", 4, 9, newName="total")["changes"][URI]
    assert [e["newText"] for e in edits] == ["%total"] * 3
    items = client.ask("completion", 4, 9)
    assert {"%A", "%x"} <= {i["label"] for i in items}
    names = client.request("textDocument/documentSymbol", {"textDocument": {"uri": URI}})
    assert [n["name"] for n in names] == ["k"]
    options = {"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": True}}
    (edit,) = client.request("textDocument/formatting", options)
    assert "store(%x + %x, %A[0 +: 4])" in edit["newText"] and "🙂" in edit["newText"]
    client.notify("textDocument/didClose", {"textDocument": {"uri": URI}})


def test_positions_count_utf16_units() -> None:
    text = "a🙂b\nc"
    for offset, where in ((0, (0, 0)), (1, (0, 1)), (2, (0, 3)), (3, (0, 4)), (4, (1, 0)), (5, (1, 1))):
        assert position(text, offset) == where
        assert offset_of(text, *where) == offset
    assert offset_of(text, 0, 99) == 3 and offset_of(text, 9, 0) == len(text)
