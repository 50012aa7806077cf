"""What the model server answers in place of a provider, so that the demo needs no key."""

import re

from fastroai.testing import ModelServer, Reply, ServedRequest


def install(server: ModelServer) -> None:
    """Let the server answer both agents, by words in the ticket."""
    server.rule(lambda request: request.output_tool is not None, read)
    server.rule(None, write)


def read(request: ServedRequest) -> Reply:
    """Say what the ticket is about."""
    refund = re.search(r"\$(\d+)", request.prompt)
    topics = {"parcel": "delivery", "broken": "refund", "address": "orders", "app": "technical"}
    topic = next((topic for word, topic in topics.items() if word in request.prompt), "other")
    return Reply(data={"topic": topic, "refund_usd": int(refund[1]) if refund else 0}, latency=0.15)


def write(request: ServedRequest) -> Reply:
    """Write a reply, piece by piece, as a model does."""
    decision = request.prompt.rpartition("Decision: ")[2].strip()
    decided = "" if decision.startswith("No decision") else f" {decision}"
    text = f"Thank you for your message, we are sorry for the trouble.{decided} We will see to it today."
    return Reply(text, chunk_size=24, chunk_delay=0.03)
