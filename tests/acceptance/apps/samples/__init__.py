"""Some forty small workflows, each with the end it must reach (spec V1)."""

from tests.acceptance.apps.samples import office, patterns, sales
from tests.acceptance.apps.samples.application import SAMPLES, app, pikku

__all__ = ["SAMPLES", "app", "office", "patterns", "pikku", "sales"]
