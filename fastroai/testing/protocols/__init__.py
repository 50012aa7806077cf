"""The protocols that the server speaks, one module each."""

from fastroai.testing.protocols.chat import Chat
from fastroai.testing.protocols.messages import Messages
from fastroai.testing.protocols.responses import Responses
from fastroai.testing.protocols.wire import BadRequestError, Conversation, ServerEvent, Wire

WIRES: tuple[Wire, ...] = (Responses(), Chat(), Messages())

__all__ = ["WIRES", "BadRequestError", "Conversation", "ServerEvent", "Wire"]
