"""Graphs as data: a mapping, or a JSON or YAML file, checked field by field before the graph is read (spec 3.1).

The shape that is accepted is published as ``pikkuflow/graph.schema.json``, for editors and for programs that write graphs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pikkuflow.domain.graph import KINDS, MAX_VISITS
from pikkuflow.errors import SettingError, WorkflowDefinitionError

__all__ = ["checked_node", "graph_schema", "read_graph_file"]

_SCHEMA: Final = 1

_FORM_TRIED: Final = re.compile(r"constrained-\w+|ReferenceFields|(list|dict|nullable|union)\[.*")
"""What pydantic puts into the place of an error for each of several forms that it tried."""

Text = Annotated[str, Field(min_length=1, strict=True)]
Several = Text | list[Text]
Duration = Annotated[float, Field(ge=0, strict=True)] | Text


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReferenceFields(_Said):
    """What a node gave, or ``trigger``, or ``$item``; ``path`` is keys and indexes with dots between them."""

    node: Text = Field(alias="$ref")
    path: Text | None = None


class NodeFields(_Said):
    """One node. It has exactly one of task, sleep, suspend, approval, wait_for and milestone."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"oneOf": [{"required": [name]} for name in KINDS]})

    task: Text | None = Field(None, description="The name of a Celery task or of a workflow.")
    sleep: Duration | ReferenceFields | None = Field(None, description="How long: seconds, or a text such as 2h.")
    suspend: Text | None = Field(None, description="The reason for which the run waits until it is resumed.")
    approval: Text | None = Field(None, description="What is to be decided.")
    wait_for: Text | None = Field(None, description="The name of the signal to wait for.")
    milestone: Text | None = Field(None, description="A point of no return.")
    input: Any = Field(
        None,
        description="A mapping gives keyword arguments, a list positional ones, anything else one argument. {$ref: node, path: a.b} and "
        "{$template: 'Dear $0', refs: [...]} stand in any place of it.",
    )
    next: Several | dict[Text, Several | None] | None = Field(
        None, description="What follows: a node, several, or by branch."
    )
    for_each: Text | ReferenceFields | None = Field(None, description="The list whose items it is worked for.")
    mode: Literal["parallel", "sequential"] | None = None
    recover: Several | None = Field(None, description="Nodes that take over a failure, or ignore.")
    retries: Annotated[int, Field(ge=0, strict=True)] | None = None
    retry_delay: Duration | None = Field(None, description="Seconds, a text such as 10s, or exponential.")
    dispatch: Literal["auto", "queue", "inline"] | None = None
    compensate: Annotated[bool, Field(strict=True)] | None = None
    record_start: Annotated[bool, Field(strict=True)] | None = None
    timeout: Duration | None = Field(None, description="Of one attempt, or of the wait for a signal.")
    heartbeat_timeout: Duration | None = None
    expiry: Duration | None = Field(None, description="Of an approval.")
    approvers: Literal["any", "owner", "not-initiator"] | None = None
    approver_scope: Text | None = None
    form: Text | None = Field(None, alias="schema", description="What an approval's data must be: module:name.")
    options: dict[Text, Any] | None = Field(None, description="Message options of the task, such as queue or priority.")
    notes: str | None = None


class GraphFields(_Said):
    """A graph workflow of pikkuflow."""

    schema_url: str | None = Field(None, alias="$schema")
    form: Literal[1] = Field(_SCHEMA, alias="schema", description="The version of this form.")
    name: Text
    entry: Several = Field(description="The node, or nodes, that a run begins with.")
    nodes: dict[Text, NodeFields] = Field(min_length=1)
    context: Any = None
    notes: str | None = None
    max_visits: Annotated[int, Field(ge=1, strict=True)] = Field(
        MAX_VISITS, description="How often one run may begin one node."
    )
    queue: Text | None = Field(None, description="Where the passes of its runs go.")
    dispatch: Literal["auto", "queue", "inline"] | None = None
    quick: Annotated[bool, Field(strict=True)] = False
    timeout: Duration | None = Field(None, description="How long a run may take in all.")


def checked_node(node_id: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a node as they were given, once they are known to be fields.

    Raises ``WorkflowDefinitionError``, which names the node and the field.
    """
    try:
        NodeFields.model_validate(dict(said))
    except ValidationError as error:
        where, why = _first(error)
        raise WorkflowDefinitionError(f"Node {node_id!r} has a wrong {where or 'form'}: {why}.") from None
    return dict(said)


def read_graph_file(path: str | Path) -> dict[str, Any]:
    """The fields of a graph from a file: YAML when its name ends in ``.yaml`` or ``.yml``, else JSON.

    Raises:
        WorkflowDefinitionError: the file is no graph of this form; the message names the file, and the node where it is one's.
        SettingError: the file is YAML and PyYAML is not installed.
        OSError: it cannot be read.
    """
    file = Path(path)
    written = file.read_bytes()
    try:
        text = written.decode("utf-8-sig")
        said = _yaml(text) if file.suffix in {".yaml", ".yml"} else json.loads(text, object_pairs_hook=_mapping)
        GraphFields.model_validate(said)
    except ValidationError as error:
        where, why = _first(error)
        raise WorkflowDefinitionError(f"Graph file {file.name}: {where or 'the whole'} is wrong: {why}.") from None
    except ValueError as error:
        raise WorkflowDefinitionError(f"Graph file {file.name} cannot be read: {error}") from None
    except RecursionError:
        raise WorkflowDefinitionError(f"Graph file {file.name} cannot be read: it is nested too deeply.") from None
    return {key: value for key, value in said.items() if key not in {"$schema", "schema"} and value is not None}


def graph_schema() -> dict[str, Any]:
    """The published JSON schema of a graph file."""
    return GraphFields.model_json_schema(by_alias=True)


def _first(error: ValidationError) -> tuple[str, str]:
    """Where the first thing is that is wrong, and what: of a choice between forms, the one that came the furthest."""
    found = max(error.errors(include_url=False, include_context=False), key=lambda one: len(one["loc"]))
    places = [str(part) for part in found["loc"] if not _FORM_TRIED.fullmatch(str(part))]
    said = str(found["msg"])
    why = said[:1].lower() + said[1:]
    # YAML reads yes, no and on as true and false.
    return ".".join(places), f"{why} (a key is text: write it in quotes)" if places[-1:] == ["[key]"] else why


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if not isinstance(key, Hashable):
            raise ValueError(f"{key!r} is no key")  # noqa: TRY004 - of a file, as everything else that is wrong with it
        if key in made:
            raise ValueError(f"{key!r} is in it twice")
        made[key] = value
    return made


def _yaml(text: str) -> Any:
    try:
        yaml = import_module("yaml")
    except ImportError:
        raise SettingError(
            "A YAML graph needs PyYAML.", hint='pip install "pikkuflow[yaml]", or write the graph as JSON.'
        ) from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc,name-defined]
        """Refuses a key that is there twice: of two nodes with one id, one would be lost."""

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        loader.flatten_mapping(node)
        return _mapping(loader.construct_pairs(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    try:
        return yaml.load(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
