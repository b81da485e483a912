"""Every store keeps versions of workflows alike (spec 1.4; see ``ports.versions``)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow.domain.status import RunStatus
from pikkuflow.domain.version import NewVersion, VersionKind
from tests.contract.scene import BOOM, Scene, race


def a_version(version: str = "abc", **more: Any) -> NewVersion:
    """A graph of ``shop.order``."""
    return NewVersion(
        **{
            "workflow": "shop.order",
            "version": version,
            "kind": VersionKind.GRAPH,
            "definition": '{"nodes":{}}',
            **more,
        }
    )


@pytest.mark.parametrize("kind", list(VersionKind))
def test_a_version_reads_back_as_it_was_stored(scene: Scene, kind: VersionKind) -> None:
    """T17.7: upsert and get; its definition comes back character by character."""
    text = '{"nodes": {"näme": "\\u2028 \'x\'"}, "big": "' + "x" * 100_000 + '"}'
    scene.store.store_version(a_version(kind=kind, definition=text))

    stored = scene.store.get_version("shop.order", "abc")

    assert stored is not None
    assert (stored.workflow, stored.version, stored.kind) == ("shop.order", "abc", kind)
    assert stored.definition == text
    assert stored.created_at.tzinfo is not None


def test_a_version_that_is_there_is_never_overwritten(scene: Scene) -> None:
    """T17.7, spec 1.4: a duplicate is a no-op, and no error."""
    scene.store.store_version(a_version(definition='{"first":1}'))
    before = scene.store.get_version("shop.order", "abc")
    scene.store.store_version(a_version(definition='{"second":2}', kind=VersionKind.FUNCTION))

    assert scene.store.get_version("shop.order", "abc") == before


def test_a_version_that_was_never_stored_is_none(scene: Scene) -> None:
    """T17.7: missing is null; a version is one workflow's own."""
    scene.store.store_version(a_version())

    assert scene.store.get_version("shop.order", "none") is None
    assert scene.store.get_version("shop.other", "abc") is None
    assert scene.store.get_version("shop.order", "ABC") is None


def test_several_versions_go_in_together(scene: Scene) -> None:
    """A worker stores what it has with one act; what is there already does not keep the others out."""
    scene.store.store_version(a_version())
    scene.store.store_version(
        a_version("old"), a_version(), a_version(workflow="shop.pack"), a_version(workflow="shop.pack")
    )
    scene.store.store_version()

    assert {one.version for one in scene.store.list_versions("shop.order")} == {"abc", "old"}
    assert [one.version for one in scene.store.list_versions("shop.pack")] == ["abc"]


def test_versions_are_listed_in_the_order_in_which_they_came(scene: Scene) -> None:
    """Both hashes of a changed workflow are kept, the newer after the older; another workflow's are not among them."""
    for version in ("b", "c", "a"):
        scene.store.store_version(a_version(version))
        scene.store.store_version(a_version(version, workflow="shop.other"))
        scene.advance(1)

    assert [one.version for one in scene.store.list_versions("shop.order")] == ["b", "c", "a"]
    assert list(scene.store.list_versions("nobody")) == []


def test_workers_that_start_together_store_the_same_versions(scene: Scene) -> None:
    """Each stores all of them at the same moment, in an order of its own; none fails, and each is there once."""
    versions = [a_version(str(number)) for number in range(8)]
    race(*(lambda turn=turn: scene.store.store_version(*versions[turn:], *versions[:turn]) for turn in range(4)))

    assert sorted(one.version for one in scene.store.list_versions("shop.order")) == [str(n) for n in range(8)]


def test_open_runs_are_counted_by_the_version_they_were_started_with(scene: Scene) -> None:
    """Running, suspended and unwinding ones count, settled ones and those of other workflows do not."""
    scene.insert("oldest", version="v1")
    scene.advance(5)
    for run_id, version in (("sleeps", "v1"), ("waits", "v2"), ("done", "v2"), ("failed", "v3"), ("unknown", "")):
        scene.insert(run_id, version=version)
    scene.insert("other", workflow="shop.other", version="v1")
    scene.open("waits")
    scene.close(scene.ref("waits"), status=RunStatus.SUSPENDED, code="VERSION_CONFLICT", error=BOOM)
    scene.stop("sleeps")
    scene.open("done")
    scene.close(scene.ref("done"), status=RunStatus.COMPLETED, output="1")
    scene.open("failed")
    scene.close(scene.ref("failed"), status=RunStatus.FAILED, error=BOOM)

    counted = {one.version: one for one in scene.store.count_open_runs("shop.order")}

    assert {version: one.count for version, one in counted.items()} == {"": 1, "v1": 2, "v2": 1}
    assert counted["v1"].oldest_at == scene.run("oldest").created_at
    assert list(scene.store.count_open_runs("nobody")) == []


def test_deleting_a_run_leaves_its_version(scene: Scene) -> None:
    """Other runs of it may be there, and what was run stays known."""
    scene.store.store_version(a_version())
    ref = scene.begin(version="abc")
    scene.close(ref, status=RunStatus.COMPLETED, output="1")
    assert scene.store.delete_run(ref.run_id)

    assert scene.store.get_version("shop.order", "abc") is not None
