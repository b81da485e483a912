"""Many steps at once: a map, different steps together, and one that fails without losing the others."""

from celery import Celery

from pikkuflow import PikkuFlow, StepFailed, Workflow

app = Celery("fan_out")
pikku = PikkuFlow(app)


@app.task
def resize(picture: str) -> str:
    """One member of the map."""
    return f"{picture}@small"


@app.task
def count(words: list[str]) -> int:
    """One of two different steps."""
    return len(words)


@app.task
def check(words: list[str]) -> str:
    """The other one does not like what it sees."""
    raise ValueError(f"{words[0]!r} is no word")


@pikku.workflow(name="fan_out.album")
def album(wf: Workflow, pictures: list[str]) -> dict[str, object]:
    """Resize all pictures in parallel, then do two different things together."""
    small = wf.map(resize, pictures)
    counted = wf.submit(count.s(pictures))
    checked = wf.submit(check.s(pictures), retries=0)
    number, failure = wf.gather(counted, checked, return_exceptions=True)
    reason = failure.error_message if isinstance(failure, StepFailed) else ""
    return {"small": small, "number": number, "refused": reason}


if __name__ == "__main__":
    print(album.run_inline(["a.png", "b.png"]).result())
