"""Griffe extension for signatures: of `execute_sync = blocking(execute, ...)`, of dataclasses and options.

Griffe takes `name: ClassVar = value` for a parameter of a dataclass, as it looks for `ClassVar[...]` only.
"""

from __future__ import annotations

from typing import Any

import griffe


class SyncTwins(griffe.Extension):
    """Gives sync twins the signatures of their methods, leaves out class variables, and inherits options."""

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Keep a class variable out of the signature of its dataclass."""
        if str(attr.annotation) == "ClassVar":
            attr.annotation = None

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Give a `TypedDict` the keys of its base, which `unpack_typeddict` has made parameters there."""
        for base in cls.resolved_bases:
            if "typed-dict" in base.labels and isinstance(base, griffe.Class):
                for one in base.functions["__init__"].parameters:
                    if one.name != "self" and one.name not in cls.members:
                        cls.set_member(one.name, griffe.Attribute(one.name, annotation=one.annotation))

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        """Replace the twins among the members of a class, once they have all been read."""
        for name, member in list(cls.members.items()):
            method = _method_of(member)
            if method is None:
                continue
            original = cls.members[method]
            if isinstance(original, griffe.Attribute):  # another name of a method: `run = execute`
                original = cls.members[str(original.value)]
            assert isinstance(original, griffe.Function)
            summary, _, _ = (griffe.dynamic_import(member.path).__doc__ or "").partition("\n\n")
            twin = griffe.Function(
                name,
                lineno=member.lineno,
                endlineno=member.endlineno,
                parameters=original.parameters,
                returns=original.returns,
                docstring=griffe.Docstring(summary),
            )
            cls.set_member(name, twin)


def _method_of(member: griffe.Object | griffe.Alias) -> str | None:
    """The name of the async method that a member is the twin of, if it is one."""
    if isinstance(member, griffe.Attribute):
        calls = [member.value]
    elif isinstance(member, griffe.Function):
        calls = [decorator.value for decorator in member.decorators]
    else:
        return None
    for call in calls:
        if isinstance(call, griffe.ExprCall) and str(call.function) in (
            "blocking",
            "blocking_overloaded",
            "blocking_twin",
        ):
            return str(call.arguments[0])
    return None
