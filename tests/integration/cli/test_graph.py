"""``flow graph`` through an application of one process."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from celery import Celery

from pikkuflow import Node, PikkuFlow, Workflow
from pikkuflow.adapters.sql import migrations
from tests.integration.cli.test_versions import call

FORMS = {"mermaid": "flowchart TD", "dot": "digraph", "text": "[ ] check (entry)"}


def shop(folder: Path) -> PikkuFlow:
    """A graph, a function with a plan, and one without."""
    app = Celery("shop", set_as_current=False)
    app.conf.pikkuflow_database_url = f"sqlite:///{folder / 'shop.db'}"
    pikku = PikkuFlow(app)

    @app.task(name="check", shared=False)
    def check() -> int:
        return 1

    pikku.graph(
        "shop.order", nodes={"check": Node(task=check, next="wait"), "wait": Node(suspend="courier")}, entry="check"
    )

    @pikku.workflow(name="shop.plain")
    def plain(wf: Workflow) -> int:
        return int(wf.do("pack", lambda: 1))

    return pikku


@pytest.mark.parametrize("form", FORMS)
def test_a_workflow_is_drawn_without_a_database(tmp_path: Path, form: str) -> None:
    """Issue E, Build 5: mermaid, dot and text need nothing beside the application."""
    result = call(shop(tmp_path), "graph", "shop.order", "--format", form)

    assert result.exit_code == 0
    assert FORMS[form] in result.output
    assert not (tmp_path / "shop.db").exists()


def test_a_run_is_drawn_with_its_statuses_and_text_is_the_default(tmp_path: Path) -> None:
    """Issue E, Build 5: a run by its id, its steps by letter and word."""
    pikku = shop(tmp_path)
    migrations.upgrade(pikku.settings.database_url)
    pikku.workflow_named("shop.order").using(run_id="r1").run_inline()
    pikku.workflow_named("shop.plain").using(run_id="shop.plain").run_inline()

    shown = call(pikku, "graph", "r1").output.splitlines()
    assert shown[0] == "shop.order run r1: suspended"
    assert "  [S] check (entry) - succeeded" in shown
    assert "  [W] wait - suspended" in shown
    assert "class n0 succeeded" in call(pikku, "graph", "r1", "--format", "mermaid").output
    assert "  [S] pack (entry) - succeeded" in call(pikku, "graph", "--run", "shop.plain").output.splitlines()


def test_what_is_neither_a_workflow_nor_a_run_is_a_mistake(tmp_path: Path) -> None:
    """Exit code 1, and what there is; a function without a plan says what to draw instead."""
    pikku = shop(tmp_path)
    migrations.upgrade(pikku.settings.database_url)

    unknown = call(pikku, "graph", "shop.orders")
    assert unknown.exit_code == 1
    assert "no workflow and no run 'shop.orders'" in unknown.output
    assert "shop.order, shop.plain" in unknown.output
    plain = call(pikku, "graph", "shop.plain")
    assert plain.exit_code == 1
    assert "flow graph RUN" in plain.output
    assert call(pikku, "graph", "shop.order", "--format", "png").exit_code == 2


def test_an_svg_without_graphviz_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue E, Build 5: one clear error, whether the package is missing or the program."""
    pikku = shop(tmp_path)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "graphviz", None)
        without_package = call(pikku, "graph", "shop.order", "--format", "svg")
    assert without_package.exit_code == 1
    assert 'pip install "pikkuflow[graphviz]"' in without_package.output

    pytest.importorskip("graphviz")
    monkeypatch.setenv("PATH", str(tmp_path))
    without_program = call(pikku, "graph", "shop.order", "--format", "svg")
    assert without_program.exit_code == 1
    assert "its program dot is missing" in without_program.output
    assert 'pip install "pikkuflow[graphviz]"' in without_program.output


def test_an_svg_is_what_dot_makes_of_the_dot_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue E, Build 5: Graphviz draws; where it is not installed, a program that takes its place says what it was asked for."""
    pytest.importorskip("graphviz")
    if shutil.which("dot") is None:
        program = tmp_path / "bin" / "dot"
        program.parent.mkdir()
        program.write_text('#!/bin/sh\necho "<svg>$*"\ncat\necho "</svg>"\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")

    result = call(shop(tmp_path), "graph", "shop.order", "--format", "svg")

    assert result.exit_code == 0
    assert "<svg" in result.output
    assert "check" in result.output
