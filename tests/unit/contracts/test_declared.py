"""What classes and functions declare."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

import pytest

from fastroai.contracts.declared import argument_of, returned_type

if TYPE_CHECKING:
    from decimal import Decimal

T = TypeVar("T")
D = TypeVar("D")


class Base(Generic[D, T]): ...


class Direct(Base[int, str]): ...


class Below(Direct): ...


class ListOf(Base[D, list[T]]): ...


class Swapped(ListOf[T, D]): ...


class OfBytes(Swapped[bytes, int]): ...


class Mixed(list[int], Base[None, bool]): ...


class Quoted(Base["int", "dict[str, Direct]"]): ...


class Unknown(Base["int", "Decimal"]): ...


class Silent(Base): ...


class Partly(Base[D, T], Generic[D, T]): ...


@pytest.mark.parametrize(
    ("instance", "declared"),
    [
        (Direct(), str),
        (Below(), str),
        (Base[int, bytes](), bytes),
        (ListOf[int, bytes](), list[bytes]),
        (ListOf(), list[Any]),
        (OfBytes(), list[int]),
        (Mixed(), bool),
        (Quoted(), dict[str, Direct]),
        (Unknown(), None),
        (Silent(), None),
        (Partly(), None),
        (Base[int, Any](), None),
        (3, None),
    ],
)
def test_the_argument_of_a_generic_base_is_found_below_it(instance: object, declared: Any) -> None:
    assert argument_of(instance, Base, 1) == declared


async def a_coroutine() -> int:
    return 1


def plain() -> list[int]:
    return []


def a_callable() -> Callable[[], int]:
    return lambda: 1


def awaitable() -> Awaitable[int]:
    return a_coroutine()


def nothing() -> None: ...


def anything() -> Any: ...


def never() -> NoReturn:
    raise AssertionError


def only_for_type_checkers() -> Decimal: ...


def generic(value: T) -> T:
    return value


def unknown_parameter(value: Decimal) -> int:
    return 1


def missing():  # type: ignore[no-untyped-def]  # that is what is tested
    pass


def broken() -> 1 / 0:  # type: ignore[valid-type]
    pass


class Called:
    def __call__(self) -> bytes:
        return b""

    def method(self) -> Called:
        return self


@functools.wraps(plain)
def wrapper(*args: Any) -> Any:
    return plain(*args)


@pytest.mark.parametrize(
    ("function", "declared"),
    [
        (a_coroutine, int),
        (plain, list[int]),
        (a_callable, Callable[[], int]),
        (awaitable, int),
        (nothing, type(None)),
        (anything, None),
        (never, None),
        (only_for_type_checkers, None),
        (generic, None),
        (unknown_parameter, int),
        (missing, None),
        (broken, None),
        (lambda: 1, None),
        (Called(), bytes),
        (Called().method, Called),
        (functools.partial(functools.partial(plain)), list[int]),
        (wrapper, list[int]),
        (print, None),
    ],
)
def test_a_function_says_what_it_returns(function: Callable[..., object], declared: Any) -> None:
    assert returned_type(function) == declared
