"""The shop of graphs before its change."""

from __future__ import annotations

from tests.acceptance.apps.graph_shop import shop

app, pikku = shop("old")
