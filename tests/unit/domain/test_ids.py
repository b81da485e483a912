"""A step's identity: the idempotency key that a user hands to a bank (spec 1.2, 13.3)."""

from __future__ import annotations

from uuid import NAMESPACE_DNS, RFC_4122, UUID, uuid5

from pikkuflow.domain.ids import INVOCATION_NAMESPACE, RunId, StepName, invocation_id, numbered_name


def _key(run: str, step: str) -> str:
    return invocation_id(RunId(run), StepName(step))


def test_keys_are_version_five_uuids() -> None:
    """T3.1: the RFC's vector holds here, version and variant bits are set, the same name gives the same id and another gives another."""
    assert uuid5(NAMESPACE_DNS, "www.example.com") == UUID("2ed6657d-e927-568b-95e1-2665a8aea6a2")
    key = UUID(_key("r1", "work"))
    assert (key.version, key.variant) == (5, RFC_4122)
    assert _key("r1", "work") == str(key)
    assert _key("r1", "work#1") != str(key)


def test_a_key_that_was_handed_out_never_changes() -> None:
    """Spec 1.2: the namespace and the text are frozen; this key is somewhere in a bank's books."""
    assert _key("order-42", "charge card") == str(uuid5(INVOCATION_NAMESPACE, "order-42:charge card"))
    assert _key("order-42", "charge card") == "8717d83e-07b3-5929-b04b-5ddca7a16aeb"


def test_a_key_belongs_to_one_step_of_one_run() -> None:
    """T3.2: stable for a run and a step, different for another step, different for another run."""
    assert _key("r1", "work") == _key("r1", "work")
    assert len({_key("r1", "work"), _key("r1", "other"), _key("r2", "work"), _key("r2", "other")}) == 4


def test_a_single_use_keeps_the_bare_name() -> None:
    """T3.5: so a step that is used again later keeps its old key for the first use."""
    assert [numbered_name("work", ordinal) for ordinal in range(3)] == ["work", "work#1", "work#2"]
