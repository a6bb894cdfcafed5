"""What was said, as a page shows it: messages, made from the items that the Agents SDK keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Call:
    """A tool that the assistant used. `output` is `None` until the tool has answered."""

    id: str
    name: str
    arguments: str  # JSON
    output: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the tool answered with an error."""
        return "error" in json_object(self.output)


Part: TypeAlias = "str | Call"


@dataclass(frozen=True)
class Message:
    """What one side said, with the tools it used in between. `complete` is false for what was cut short."""

    role: str
    parts: Sequence[Part]
    complete: bool = True

    @property
    def text(self) -> str:
        """What was said, without the tools."""
        return "\n\n".join(part for part in self.parts if isinstance(part, str))


def read(items: Iterable[Mapping[str, Any]]) -> list[Message]:
    """Items as messages: all that the assistant did between two messages of the person's is one of its own."""
    return [message for message, _ in places(items)]


def places(items: Iterable[Mapping[str, Any]]) -> list[tuple[Message, list[Mapping[str, Any]]]]:
    """The messages, each with the items it was made from."""
    groups: list[list[Mapping[str, Any]]] = []
    answering = False
    for item in items:
        if item.get("role") == "user":
            groups.append([item])
            answering = False
        elif item.get("role") == "assistant" or item.get("type") in ("function_call", "function_call_output"):
            if answering:
                groups[-1].append(item)
            else:
                groups.append([item])
            answering = True
        # All else is not shown, such as a model's reasoning.
    return [(_message(group), group) for group in groups]


def text_of(item: Mapping[str, Any]) -> str:
    """The words of an item that is a message."""
    content = item["content"]
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or part.get("refusal") or "" for part in content)


def to_items(parts: Iterable[Part]) -> list[Any]:
    """The items of an answer that was cut short, which the SDK does not make itself."""
    items: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            content = [{"type": "output_text", "text": part, "annotations": []}]
            items.append({"type": "message", "role": "assistant", "status": "incomplete", "content": content})
        else:
            call = {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": part.arguments}
            output = '{"error": "stopped"}' if part.output is None else part.output
            items += [call, {"type": "function_call_output", "call_id": part.id, "output": output}]
    return items


def to_markdown(title: str, messages: Iterable[Message]) -> str:
    """A conversation as a document."""
    lines = [f"# {title}"]
    for message in messages:
        lines.append("**You**" if message.role == "user" else "**Assistant**")
        for part in message.parts:
            lines.append(part if isinstance(part, str) else f"> `{part.name}` {part.arguments} → {part.output}")
        if not message.complete:
            lines.append("*(cut short)*")
    return "\n\n".join(lines) + "\n"


def beginning(text: str, most: int) -> str:
    """A text on one line, of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def json_object(text: str | None) -> dict[str, Any]:
    """What a tool was given or answered; empty where that is no JSON object."""
    try:
        value = json.loads(text or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _message(group: Sequence[Mapping[str, Any]]) -> Message:
    role = "user" if group[0].get("role") == "user" else "assistant"
    outputs = {item["call_id"]: item["output"] for item in group if item.get("type") == "function_call_output"}
    parts: list[Part] = []
    for item in group:
        if "role" in item:
            parts.append(text_of(item))
        elif item["type"] == "function_call":
            output = outputs.get(item["call_id"])
            parts.append(
                Call(item["call_id"], item["name"], item["arguments"], None if output is None else str(output))
            )
    last = group[-1]
    complete = "role" in last and last.get("status", "completed") == "completed"
    return Message(role, tuple(parts), complete)
