"""The program of docs/async-endpoints.md, called as the page says."""

from __future__ import annotations

from typing import Any

import httpx

from tests.docs.test_docs import ROOT, blocks


async def test_the_program_answers_202_and_then_the_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (text,) = blocks(ROOT / "docs" / "async-endpoints.md", "python")
    names: dict[str, Any] = {"__name__": "shop"}
    exec(compile(text, "shop.py", "exec"), names)
    app, engine = names["app"], names["engine"]
    transport = httpx.ASGITransport(app)
    async with engine, httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.post("/reports", json={"title": "q1"})
        assert answer.status_code == 202
        done = await client.get(answer.headers["location"], params={"wait": "20s"})
        assert (done.json()["status"], done.json()["result"]) == ("Completed", {"report": "Q1"})
        assert (await client.post("/reports", json={})).status_code == 422
