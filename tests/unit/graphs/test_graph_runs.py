"""Graph workflows run: their nodes, what they take, branches, joins and cycles, in every place alike (spec 3)."""

from __future__ import annotations

from typing import Any

import pytest

from pikkuflow import ref, template
from pikkuflow.engine.current_step import current_step
from pikkuflow.errors import PikkuFlowError, RunFailed
from tests.unit.graphs.stage import PLACES, Stage, staged


def _branch(*keys: str) -> Any:
    """A task that chooses these branches, one a visit."""
    left = iter(keys)

    def choose(*args: Any, **kwargs: Any) -> str:
        key = next(left)
        current_step().branch(key)
        return key

    return choose


def test_nodes_follow_each_other_and_take_what_others_gave(stage: Stage) -> None:
    """T13.9, spec 3.1: an entry gets the trigger, references and templates are resolved; the run is inline if it was asked to be."""
    run = stage.play(
        trigger={"name": "Ada", "tags": ["x", "y"]},
        a="b",
        b={
            "input": {"to": template("Dear $0", [ref("trigger", "name")]), "tag": ref("trigger", "tags.1")},
            "next": "c",
        },
        c={"input": [ref("a"), ref("b", "0")]},
    )

    assert run.result(timeout=0) is None
    assert stage.status == "completed"
    stored = stage.world.store.get_run(run.run_id)
    assert stored is not None
    assert stored.inline is (stage.place == "inline")
    assert stage.value("a") == ["Ada", ["x", "y"]]
    assert stage.value("b") == ["Dear Ada", "y"]
    assert stage.value("c") == [["Ada", ["x", "y"]], "Dear Ada"]
    assert stage.begun() == [("a", None), ("b", "a"), ("c", "b")]


def test_a_graph_is_started_with_keywords_or_one_value(stage: Stage) -> None:
    """Spec 3.1: an entry without an input gets the whole trigger: keywords as keywords, anything else as one argument."""
    stage.play(trigger=[1, 2], a=None)

    assert stage.value("a") == [[1, 2]]


def test_an_entry_gets_the_trigger_in_every_round(stage: Stage) -> None:
    """Spec 3.1: it is the node that is an entry, also when a cycle comes back to it; nothing is no argument."""
    stage.says = {"b": _branch("again", "out")}
    stage.play(trigger={"x": 1}, a="b", b={"next": {"again": "a", "out": []}})
    assert [stage.value("a"), stage.value("a#1")] == [[1], [1]]


@pytest.mark.parametrize("name", ["shop.on-boarding", "class", "two words"])
def test_a_graph_may_have_any_name(name: str) -> None:
    """It is a text, not a Python function's."""
    with staged("here") as stage:
        stage.start(stage.graph(name=name, a=None), {"x": 1})

        assert stage.value("a") == [1]
        with pytest.raises(TypeError):
            stage.pikku.workflow_named(name).start(1, 2)


def test_a_graph_may_be_started_with_nothing(stage: Stage) -> None:
    """Then an entry is called without arguments."""
    stage.play(a=None)

    assert stage.value("a") == []


def test_a_node_chooses_the_branch_that_follows(stage: Stage) -> None:
    """Spec 3.1, 3.5: ``current_step().branch(key)``; the choice is recorded with the outcome."""
    stage.says = {"a": _branch("yes")}
    stage.play(a={"next": {"yes": ["b", "c"], "no": "d"}}, b=None, c=None, d=None)

    assert [name for name, _ in stage.begun()] == ["a", "b", "c"]
    assert stage.status == "completed"


def test_a_choice_survives_the_process_that_made_it(stage: Stage) -> None:
    """A pass that only knows what is recorded follows the same branch: here one after a sleep."""
    stage.says = {"a": _branch("yes")}
    stage.play(a={"next": {"yes": "b", "no": "d"}}, b={"sleep": "1h", "next": "c"}, c={"input": [ref("a")]}, d=None)

    assert [name for name, _ in stage.begun()] == ["a", "b", "c"]
    assert stage.value("c") == ["yes"]


def test_only_the_attempt_that_succeeds_chooses(stage: Stage) -> None:
    """What a failed attempt chose counts for nothing."""
    attempts = []

    def unsure(*_: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            current_step().branch("no")
            raise ValueError("not yet")

    stage.says = {"a": unsure}
    stage.play(a={"next": {"yes": "b", "no": "c"}, "retries": 1, "retry_delay": 0}, b=None, c=None)

    assert [name for name, _ in stage.begun()] == ["a"]
    assert stage.status == "completed"


def test_a_branch_that_is_not_there_fails_the_run(stage: Stage) -> None:
    """Bad input: with the node, the key and what it may be."""
    stage.says = {"a": _branch("yees")}
    run = stage.play(a={"next": {"yes": "b", "no": "b"}}, b=None)

    with pytest.raises(RunFailed, match=r"Node 'a' chose a branch: 'yees' is not there; did you mean 'yes'\?"):
        run.result(timeout=0)
    assert stage.code == "GRAPH_NODE_FAILED"


def test_a_step_of_a_workflow_function_has_no_branches() -> None:
    """A choice that nothing could follow is an error at the call."""
    with staged("here") as stage:

        @stage.pikku.workflow(name="plain", dispatch="inline")
        def plain(wf: Any) -> Any:
            return wf.do("choose", lambda: current_step().branch("x"), retries=0)

        with pytest.raises(RunFailed, match="no node of a graph"):
            plain.run_inline().result(timeout=0)
        with pytest.raises(PikkuFlowError):
            current_step()


def test_nodes_keep_values_for_later_ones(stage: Stage) -> None:
    """Spec 3.5: state is stored with the outcome of the node that set it; parallel nodes lose nothing of each other's."""

    def keep(*_: Any) -> None:
        step = current_step()
        step.set_state(step.step, len(step.step))
        step.set_state("last", step.step)
        assert step.get_state("last") == step.step

    def look(*_: Any) -> Any:
        return [current_step().get_state(key, "none") for key in ("one", "three", "last", "four")]

    stage.says = {"one": keep, "three": keep, "look": look}
    stage.play(
        ["one", "three"],
        one="join",
        three="join",
        join={"input": [ref("one"), ref("three")], "next": "look"},
        look=None,
    )

    assert stage.value("look")[:2] == [3, 5]
    assert stage.value("look")[2] in {"one", "three"}
    assert stage.value("look")[3] == "none"


def test_a_value_that_cannot_be_kept_fails_its_node(stage: Stage) -> None:
    """Design 6: a refused payload is a final failure that names the step."""
    stage.says = {"a": lambda *_: current_step().set_state("x", object())}
    run = stage.play(a={"compensate": False})

    with pytest.raises(RunFailed, match="the state that step 'a' keeps"):
        run.result(timeout=0)
    assert stage.step("a").attempt == 1


def test_branches_run_in_parallel_and_join_once(stage: Stage) -> None:
    """T13.1, T13.5: a join fires once, when all that it refers to is there; the run is not complete before."""
    stage.play(a=["b", "c"], b="d", c={"next": "c2"}, c2="d", d={"input": [ref("b"), ref("c2")]})

    assert sorted(stage.begun(), key=lambda one: one[0]) == [
        ("a", None),
        ("b", "a"),
        ("c", "a"),
        ("c2", "c"),
        ("d", "b"),
    ]
    assert stage.diary.count("d") == 1
    assert stage.status == "completed"


def test_a_run_is_not_complete_while_a_node_is_at_work() -> None:
    """T13.1: one branch has ended, the other is with a worker."""
    with staged("away") as stage:
        flow = stage.graph(a=["b", "c"], b=None, c={"sleep": "1h"})
        flow.using(run_id="r1").start(None)
        stage.world.work()
        stage.run = stage.pikku.runs.get("r1")

        assert stage.diary == ["a", "b"]
        assert stage.status == "running"
        stage.world.advance("2h")
        assert stage.status == "completed"


def test_parallel_branches_are_dispatched_and_a_line_is_not() -> None:
    """Design 2: branches go out as submitted steps do; a single one goes on in place."""
    with staged("here") as stage:
        stage.play(a=["b", "c"], b=None, c=None)

        assert {step.name: step.place.partition(":")[0] for step in stage.steps()} == {
            "a": "pass",
            "b": "worker",
            "c": "worker",
        }


def test_a_cycle_begins_its_nodes_again(stage: Stage) -> None:
    """T13.6: walking a, b, a, c leaves a, b, a#1, c with their predecessors; references are the newest."""
    stage.says = {"a": _branch("on", "on", "out")}
    stage.play(
        a={"next": {"on": "b", "out": "c"}}, b={"input": [ref("a")], "next": "a"}, c={"input": [ref("b"), ref("a")]}
    )

    assert stage.begun() == [("a", None), ("b", "a"), ("a#1", "b"), ("b#1", "a#1"), ("a#2", "b#1"), ("c", "a#2")]
    assert stage.value("c") == [["on"], "out"]


def test_a_cycle_without_a_way_out_is_bounded() -> None:
    """Bad input (issue E): max_visits, with a clear failure."""
    with staged("here") as stage:
        stage.says = {"a": lambda *_: current_step().branch("again")}
        nodes: dict[str, Any] = {
            "a": {"task": "do", "next": {"again": "a", "out": "b"}, "compensate": False},
            "b": {"task": "do"},
        }
        flow = stage.pikku.graph("flow", nodes=nodes, entry="a", max_visits=50)
        run = stage.start(flow)

        with pytest.raises(RunFailed, match="Node 'a' was begun 50 times, which is the most that max_visits allows"):
            run.result(timeout=0)
        assert len(stage.steps()) == 50


def test_arguments_that_do_not_fit_fail_the_run_with_the_nodes_name(stage: Stage) -> None:
    """A task's own check says nothing of the node."""

    @stage.pikku.app.task(name="exact", shared=False)
    def exact(*, number: int) -> int:
        return number

    run = stage.play(a={"task": "exact", "input": {"number": ref("trigger", "missing")}})

    with pytest.raises(RunFailed, match=r"Node 'a' cannot be called: .*number"):
        run.result(timeout=0)


@pytest.mark.parametrize("place", ["here", "away"])
def test_a_task_that_is_not_there_suspends_the_run(place: str) -> None:
    """T13.8, D5: nothing is spent; once it is deployed the run goes on."""
    with staged(place) as stage:
        flow = stage.graph(a="b", b={"task": "later"})
        stage.run = flow.using(run_id="r1").start(None)
        stage.world.work()
        assert (stage.status, stage.code) == ("suspended", "TASK_NOT_FOUND")

        stage.task("later")
        stage.run.resume()
        stage.world.work()

        assert stage.status == "completed"
        assert stage.step("b").attempt == 1


def test_retries_and_their_delays_are_the_nodes(stage: Stage) -> None:
    """T13.11, T17.5: attempts are retries plus one, with the node's delay between them; then the run fails (T13.7)."""
    stage.says = {"a": ValueError("boom")}
    begun = stage.world.clock.now()
    run = stage.play(a={"retries": 2, "retry_delay": "10s", "compensate": False})

    with pytest.raises(RunFailed, match="Step 'a' of run r1 failed after 3 attempts: ValueError: boom"):
        run.result(timeout=0)
    assert stage.code == "GRAPH_NODE_FAILED"
    assert stage.diary == ["a", "a", "a"]
    assert 20 <= (stage.world.clock.now() - begun).total_seconds() < 22


def test_a_node_may_say_where_it_is_worked() -> None:
    """Spec 3.1: ``dispatch`` and message options of a node."""
    with staged("here") as stage:
        stage.play(a={"dispatch": "queue", "options": {"priority": 3}, "next": "b"}, b=None)

        assert stage.step("a").place.startswith("worker:")
        assert '"priority": 3' in stage.step("a").options
        assert stage.step("b").place.startswith("pass:")


def test_the_same_rows_are_left_in_every_place() -> None:
    """Spec 3.3: names, results and predecessors are the same in place, by messages and inline."""
    left = []
    for place in PLACES:
        with staged(place) as stage:
            stage.says = {"b": _branch("on", "out"), "items": [1, 2, 3]}
            stage.play(
                a="items",
                items=["b", "c"],
                c={"for_each": "items", "next": "d"},
                b={"next": {"on": "b2", "out": "d"}},
                b2="b",
                d={"input": [ref("b"), ref("c")], "recover": "ignore", "next": "e"},
                e={"sleep": 1},
            )
            assert stage.status == "completed"
            left.append({step.name: (step.result, step.from_step, step.status) for step in stage.steps()})

    assert left[0] == left[1] == left[2]
    assert sorted(left[0]) == ["a", "b", "b#1", "b2", "c", "c[0]", "c[1]", "c[2]", "d", "e", "items"]


def test_quick_nodes_are_written_together_with_their_branches() -> None:
    """Issue C: outcomes of consecutive quick steps share a commit; choices and state are among them."""
    with staged("here") as stage:
        stage.says = {"a": _branch(*["on"] * 9, "out"), "b": lambda *_: current_step().set_state("b", "kept")}
        nodes: dict[str, Any] = {
            "a": {"task": "do", "compensate": False, "next": {"on": "b", "out": "c"}},
            "b": {"task": "do", "compensate": False, "next": "a"},
            "c": {"task": "do", "compensate": False, "next": "d"},
            "d": {"sleep": "1h", "next": "e"},
            "e": {"task": "do", "compensate": False},
        }
        stage.says["c"] = stage.says["e"] = lambda *_: current_step().get_state("b")
        stage.start(stage.pikku.graph("flow", nodes=nodes, entry="a", quick=True))

        assert stage.status == "completed"
        assert [name for name, _ in stage.begun()][-4:] == ["a#9", "c", "d", "e"]
        assert (stage.value("c"), stage.value("e")) == ("kept", "kept")


def test_an_entry_that_is_declared_may_be_chosen(stage: Stage) -> None:
    """T13.2: only ids listed as entries are accepted; without a choice all of them begin."""
    flow = stage.graph(["a", "b"], a=None, b="c", c=None)
    with pytest.raises(PikkuFlowError, match="'c' is no entry"):
        flow.using(start_node="c").start(None)

    stage.start(flow, start_node="b")

    assert stage.begun() == [("b", None), ("c", "b")]
    if stage.place != "inline":
        flow.using(run_id="r2", start_node="a").delay(None)
        stage.world.settle()
        stage.run = stage.pikku.runs.get("r2")
        assert stage.begun() == [("a", None)]


def test_what_is_no_list_makes_no_run(stage: Stage) -> None:
    """Bad input (issue E): an entry over the trigger's items, refused before a run exists."""
    flow = stage.graph(a={"for_each": ref("trigger", "lines")})

    with pytest.raises(PikkuFlowError, match="which is str and no list"):
        stage.start(flow, {"lines": "abc"})
    assert stage.world.store.get_run(stage.run.run_id) is None
