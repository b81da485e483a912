"""The canvas you already have, as a durable run: started by itself, and as one step of a workflow."""

from typing import Any

from celery import Celery, chain, chord, group

from pikkuflow import PikkuFlow, Workflow

app = Celery("canvas")
pikku = PikkuFlow(app)


@app.task(name="canvas.fetch")
def fetch(page: int) -> int:
    """Worked for each page, side by side."""
    return page * 10


@app.task(name="canvas.total")
def total(numbers: list[int]) -> int:
    """Begins when all of them are there, and once."""
    return sum(numbers)


@app.task(name="canvas.write")
def write(number: int, title: str) -> str:
    """Gets the result of the one before it, and then its own argument."""
    return f"{title}: {number}"


@pikku.workflow(name="canvas.report")
def report(wf: Workflow, pages: int) -> str:
    """A canvas is one step here, and a run of its own."""
    counted: Any = wf.do("count", chord([fetch.s(page) for page in range(pages)], total.s()))
    written: str = wf.do(write.s(counted, "total"))
    return written


if __name__ == "__main__":
    print(report.run_inline(4).result())
    canvas = chain(group(fetch.s(page) for page in range(3)), total.s(), write.s("here"))
    run = pikku.durable(canvas).run_inline()
    print(run.result())
    for name, value in run.results().items():
        print(name, value)
