"""A workflow that is data: ``order.yaml`` says what follows what, and the tasks are ordinary ones. Needs ``pikkuflow[yaml]``."""

from pathlib import Path

from celery import Celery

from pikkuflow import PikkuFlow, current_step

app = Celery("graph")
pikku = PikkuFlow(app)


@app.task(name="graph.check")
def check(lines: list[dict[str, str]]) -> int:
    """A node chooses what follows it."""
    current_step().branch("good" if lines else "empty")
    return len(lines)


@app.task(name="graph.pack")
def pack(sku: str) -> str:
    """Worked for each line, side by side."""
    return f"[{sku}]"


@app.task(name="graph.weigh")
def weigh(parcels: list[str], last: int | None = None) -> int:
    """The first time round there is no last weight."""
    weight = 10 * len(parcels) if last is None else last
    current_step().branch("heavy" if weight > 5 else "light")
    return weight


@app.task(name="graph.lighten")
def lighten(weight: int) -> int:
    """Half of the padding goes."""
    return weight // 2


@app.task(name="graph.ship")
def ship(weight: int) -> str:
    """The end of the road."""
    return f"parcel of {weight} kg"


@app.task(name="graph.write")
def write(text: str) -> str:
    """A letter."""
    return text


order = pikku.graph_file(Path(__file__).with_name("order.yaml"))

if __name__ == "__main__":
    run = order.run_inline({"name": "Ada", "lines": [{"sku": "tea"}, {"sku": "cup"}]})
    print(run.result())
    for name, value in run.results().items():
        print(name, value)
