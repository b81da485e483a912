"""The shop's own tests, as they were before a workflow was added."""

import pytest
from plainshop.celery_app import app
from plainshop.tasks import charge, check_address, notify, print_label, reserve


@pytest.fixture(autouse=True)
def eager():
    """Run every task here, as the shop's tests always did."""
    before = app.conf.task_always_eager
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = before


def test_reserve_gives_the_lines_of_an_order():
    """It is an ordinary function call."""
    assert reserve(1) == ["tea", "cup"]


def test_a_charge_is_retried_until_the_bank_answers():
    """The bound task asks for a retry once."""
    assert charge.delay(1, 999).get() == "payment-1-999"


def test_an_address_is_looked_up_again_when_the_line_breaks():
    """The second and the third try are Celery's own."""
    assert check_address.delay(1).get() == "1 Harbour Street"


def test_labels_can_still_be_printed_by_a_group():
    """Canvas works as it did."""
    from celery import group

    assert group(print_label.s(sku) for sku in ("tea", "cup"))().get() == ["label-tea", "label-cup"]


def test_a_wrong_call_is_refused():
    """Argument checks are Celery's."""
    with pytest.raises(TypeError):
        notify.delay(1)


def test_tasks_keep_their_routes():
    """Labels go to the printers."""
    assert app.amqp.router.route({}, "plainshop.tasks.print_label")["queue"].name == "printers"
