"""What people have tried to get out of evaluators like this one."""

import pytest
from support.canaries import canaries, canary_key, nothing_is_called

from fastroai.errors import ExpressionError
from fastroai.expressions import Expression
from fastroai.expressions.functions import FUNCTIONS

PAYLOADS = [
    "().__class__.__bases__[0].__subclasses__()",
    "().__class__",
    "x.__class__.__mro__[1]",
    "x.__dict__",
    "x.__init__.__globals__['os']",
    "[x for x in ().__class__.__base__.__subclasses__() if x.__name__ == 'Popen'][0]('id')",
    "[c for c in x.__class__.__mro__]",
    "{}.__class__.__base__",
    "''.__class__.__mro__[2]",
    "len.__self__",
    "len.__globals__",
    "len.__call__(1)",
    "has.__closure__",
    "__import__('os').system('id')",
    "__builtins__['eval']('1')",
    "__builtins__.open('/etc/passwd')",
    "__loader__.load_module('os')",
    "__name__",
    "eval('1')",
    "exec('import os')",
    "compile('1', '', 'eval')",
    "open('/etc/passwd').read()",
    "globals()['os']",
    "locals()",
    "vars()",
    "dir()",
    "getattr(x, '__class__')",
    "setattr(x, 'a', 1)",
    "type(x)",
    "type('X', (), {})()",
    "object()",
    "super().__init__()",
    "input()",
    "print('x')",
    "breakpoint()",
    "help()",
    "exit()",
    "memoryview(b'')",
    "map(len, xs)",
    "filter(len, xs)",
    "iter(xs)",
    "next(xs)",
    "str.format('{0.__class__}', x)",
    "'{0.__class__}'.format(x)",
    "'{x}'.format_map(x)",
    "'%(x)s' % {'x': 1} % x.y()",
    "f'{x.__class__}'",
    "f'{x!r}'",
    "f'{().__class__}'",
    "(lambda: 1)()",
    "(lambda f: f(f))(lambda f: f(f))",
    "(x := 1)",
    "[y := 1, y]",
    "[(y := x) for x in xs]",
    "(x for x in xs).gi_frame.f_back.f_builtins",
    "(x for x in xs).gi_frame",
    "(x for x in xs).send(None)",
    "[g.gi_frame for g in [(x for x in xs)]]",
    "(yield)",
    "(yield from xs)",
    "(await x)",
    "[x async for x in xs]",
    "max(xs, key=eval)",
    "sorted(xs, key=lambda x: x)",
    "min(xs, default=__import__('os'))",
    "sum([[]], [])",
    "len(*[xs])",
    "len(**{'obj': xs})",
    "xs.append(1)",
    "xs.__setitem__(0, 1)",
    "d.update({'a': 1})",
    "d.pop('a')",
    "d.items()",
    "xs.sort()",
    "del x",
    "x = 1",
    "x += 1",
    "xs[0] = 1",
    "import os",
    "from os import system",
    "class X: pass",
    "def f(): pass",
    "@print\ndef f(): pass",
    "match x:\n case _: 1",
    "while True: pass",
    "for x in xs: pass",
    "try: 1\nexcept: 2",
    "with x: pass",
    "raise x",
    "assert x",
    "return x",
    "global x",
    "1; import os",
    "1\nimport os",
    "# coding: utf-7\n+AF8-",
    "...",
    "b'abc'",
    "{*xs}",
    "[*xs]",
    "{**d}",
    "xs[::1000000]",
    "9 ** 9 ** 9 ** 9",
    "1 << 10000000000",
    "__debug__",
    "ｘ.__ｃlass__",
    "x.__class__ if False else 1",
    "True or x.__class__",
    "print.__self__",
    "\x00",
    "NotImplemented.__class__()",
    "copyright()",
    "license.__class__",
]


@pytest.mark.parametrize("text", PAYLOADS)
def test_an_attempt_to_escape_does_not_even_build(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "len",
        "eval",
        "open",
        "print",
        "NotImplemented",
        "Ellipsis",
        "gi_frame",
        "x.gi_frame",
        "x.f_globals",
        "x.func_globals",
        "x.mro",
        "x['__class__']",
        "x['__globals__']",
        "xs['__len__']",
        "x[len]",
        "[eval for i in xs]",
    ],
)
def test_what_looks_like_a_builtin_or_an_attribute_is_a_key_of_the_data(text: str) -> None:
    outcome = Expression(text).test({"x": {}, "xs": [1]})
    assert (outcome.holds, bool(outcome.missing or outcome.problem)) == (False, True)


@pytest.mark.parametrize(
    "text",
    [
        "'a' * 1000000000",
        "[0] * 1000000000",
        "'%1000000000d' % 1",
        "x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x * x",
        "int('9' + digits)",
        "round(1, -1000000000)",
        "len([1 for a in r for b in r for c in r for d in r for e in r for f in r])",
        "sum(sum(sum(a for a in r) for b in r) for c in r)",
        "[[[[[[[a for a in r] for b in r] for c in r] for d in r] for e in r] for f in r] for g in r]",
        "all(all(all(all(a == a for a in r) for b in r) for c in r) for d in r)",
        "{str(a) + str(b) + str(c): 1 for a in r for b in r for c in r}",
        "[text + text for a in r for b in r]",
        "[upper(text) for a in r for b in r]",
        "any(part in text for a in r for b in r)",
        "sorted([sorted([a * b for a in r]) for b in r for c in r])",
    ],
)
def test_an_attempt_to_use_up_time_or_memory_is_stopped(text: str) -> None:
    data = {
        "x": 10**100,
        "digits": "9" * 100_000,
        "r": list(range(1_000)),
        "text": "a" * 2_400,
        "part": "a" * 600 + "b" + "a" * 600,
    }
    assert Expression(text).test(data).problem


# --- foreign values, in the hands of every operation ---

OPERATORS = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
SIDES = [
    "x {} 1",
    "1 {} x",
    "'a' {} x",
    "xs {} xs",
    "xs {} [1]",
    "xs {} 'n'",
    "d {} {{'n': 1}}",
    "1 {} xs",
    "'n' {} d",
]
ONE = [name for name, function in FUNCTIONS.items() if function.least == 1]
TWO = ["min", "max", "round", "contains", "startswith", "endswith"]
TOUCHING = [
    *(side.format(operator) for operator in OPERATORS for side in SIDES),
    *(f"{name}({argument})" for name in ONE for argument in ["x", "xs", "[xs]", "d"]),
    *(f"{name}({arguments})" for name in TWO for arguments in ["x, x", "1, x", "'a', x", "xs, 1", "d, 'n'"]),
    *(f"{name}(y for y in xs)" for name in ("any", "all", "sum", "min", "max", "sorted")),
    *[
        "x",
        "xs",
        "d",
        "[x]",
        "{'k': x}",
        "{x: 1}",
        "not x",
        "-x",
        "+x",
        "1 if x else 2",
        "x.n",
        "x['n']",
        "x[0]",
    ],
    *[
        "xs[x]",
        "xs[0]",
        "xs[0].n",
        "d[x]",
        "d[key]",
        "d.n",
        "d['n']",
        "has(x)",
        "has(x.n)",
        "has(d.n)",
        "has(d.n.m)",
    ],
    *["[y for y in x]", "[y for y in xs]", "[y for y in d]", "[y for y in [1] if x]", "[y for y, z in xs]"],
    *[
        "[y for y, z in [xs]]",
        "{y: 1 for y in xs}",
        "{'k': y for y in xs}",
        "f(x)",
        "f(xs)",
        "f(d)",
        "g() == 1",
    ],
]


def test_no_operation_calls_anything_of_a_foreign_value() -> None:
    expressions = [Expression(text, functions={"f": lambda value: value, "g": object}) for text in TOUCHING]
    for canary in canaries():
        for data in (
            {"x": canary, "xs": [canary, 1], "d": {"n": canary}, "key": "n"},
            {"x": [canary], "xs": [1, canary], "d": {canary_key("n"): 1}, "key": "n"},
            {"x": {"n": canary}, "xs": [[canary]], "d": {"n": {canary_key("m"): canary}}, "key": "n"},
        ):
            for expression in expressions:
                with nothing_is_called():
                    expression.test(data).explain()
                    try:
                        expression.evaluate(data)
                    except ExpressionError as error:
                        str(error)


def test_a_dict_that_takes_the_place_of_another_one_in_memory_is_looked_at_too() -> None:
    foreign = {canary_key("n"): 1}
    expression = Expression("[{'k': x}.k for x in [1, 2]] and f().n", functions={"f": foreign.copy})
    with nothing_is_called():
        outcome = expression.test({})
    assert outcome.problem == "a dict has a key of type Canary; keys of JSON data are text"
