"""What the model server answers in place of a provider, so that the desk runs without a key."""

import re

from fastroai.testing import ModelServer, Reply, ServedRequest, ToolCall


def install(server: ModelServer) -> None:
    """Let the server answer the two agents of the desk, by keywords in the invoice."""
    server.rule(lambda request: request.output_tool is not None, read)
    server.rule(None, write)


def read(request: ServedRequest) -> Reply:
    """Look the vendor up, then say what the invoice says."""
    vendor, total = _field("From", request.prompt), _field("Total", request.prompt)
    if not request.tool_results:
        return Reply(tool_calls=[ToolCall("look_up_vendor", {"name": vendor})])
    doubts = ["The vendor is new."] if "never" in request.tool_results[-1].text else []
    return Reply(data={"vendor": vendor, "total": total, "doubts": doubts})


def write(request: ServedRequest) -> Reply:
    """Write a reply, slowly, as a model does."""
    decision = request.prompt.partition("\n")[0]
    vendor, total = _field("From", request.prompt), _field("Total", request.prompt)
    text = f"Dear {vendor}, thank you for your invoice over {total}. {decision} Your accounts department"
    return Reply(text, chunk_size=8, chunk_delay=0.05)


def _field(name: str, text: str) -> str:
    found = re.search(rf"^{name}: (.+)$", text, re.MULTILINE)
    return found[1].strip() if found else "unknown"
