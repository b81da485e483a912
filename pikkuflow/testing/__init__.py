"""For your own tests: run workflows in memory, with a clock that the test moves; no broker, no worker, no database.

    from pikkuflow.testing import in_memory

    def test_an_order_is_packed_after_two_hours() -> None:
        with in_memory(pikku) as world:
            run = order.start(42)
            world.work()
            assert run.status().status == "running"
            world.advance("2h")
            assert run.result() == {"packed": True}

With pytest, the fixture ``pikkuflow_memory`` does the same: ``world = pikkuflow_memory(pikku)``.
"""

from pikkuflow.testing.world import MemoryWorld, in_memory

__all__ = ["MemoryWorld", "in_memory"]
