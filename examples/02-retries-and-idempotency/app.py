"""A bank that is busy twice: the attempts share one idempotency key, so it books once."""

from celery import Celery

from pikkuflow import PikkuFlow, Workflow, current_step

app = Celery("retries")
pikku = PikkuFlow(app)
BOOKED: dict[str, int] = {}


@app.task
def charge(cents: int) -> str:
    """Book under the step's invocation id; the answer of the first two tries is lost."""
    step = current_step()
    BOOKED.setdefault(step.invocation_id, cents)
    if step.attempt <= 2:
        raise TimeoutError("no answer from the bank")
    return f"booked at attempt {step.attempt}"


@app.task
def send_letter(text: str) -> str:
    """A letter that must not go out twice."""
    return f"sent: {text}"


@pikku.workflow(name="retries.pay")
def pay(wf: Workflow, cents: int) -> dict[str, object]:
    """Charge with up to three retries; the letter is started once at most."""
    paid = wf.do("charge", charge.s(cents), retries=3, retry_delay=0.05)
    letter = wf.do("letter", send_letter.s("thank you"), retries=0)
    return {"paid": paid, "letter": letter}


if __name__ == "__main__":
    print(pay.run_inline(500).result())
    print(f"bookings: {len(BOOKED)}")
