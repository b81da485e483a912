"""Small things remembered: an inline step, the time, an id, and state that others can read."""

from celery import Celery

from pikkuflow import PikkuFlow, Workflow

app = Celery("inline")
pikku = PikkuFlow(app)


@app.task
def greet(name: str, day: str) -> str:
    """An ordinary task."""
    return f"good {day}, {name}"


@pikku.workflow(name="inline.hello")
def hello(wf: Workflow, name: str) -> dict[str, object]:
    """Each value below is recorded once and is the same on every replay."""
    moment = wf.now()
    day = wf.do("day", lambda: "morning" if moment.hour < 12 else "evening")
    ticket = wf.uuid()
    wf.state.set("ticket", str(ticket))
    return {"greeting": wf.do(greet.s(name, day)), "ticket": wf.state.get("ticket") == str(ticket)}


if __name__ == "__main__":
    print(hello.run_inline("Ada").result())
