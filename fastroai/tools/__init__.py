"""Tools that tell the model about a failure instead of ending its run."""

from fastroai.tools.safe import safe_tool
from fastroai.tools.toolsets import FunctionToolsetBase, SafeToolset

__all__ = ["FunctionToolsetBase", "SafeToolset", "safe_tool"]
