"""The user's functions as scopes: `attention` of a step that calls a function of this name.

What the user's Python functions compute has the scope of their call, as in .gc. They are found on
the stack, between the traced function, or the layer that is being called, and the line that runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from graphc.ir.builder import Builder
from graphc.support.caller import is_users

DEEPEST = 24  # calls in calls; what lies deeper is of the last one


class CalledFunctions:
    """The calls of the user's functions that are on the stack, each with its scope.

    paths: where objects are in the tree of parameters, by id: names for their methods
    floor: the frame below the traced function, or below the layer that is being called
    """

    def __init__(self, builder: Builder, paths: Mapping[int, str]) -> None:
        self._builder, self._paths = builder, paths
        self._floor: FrameType | None = None
        self._active: list[tuple[FrameType, str]] = []  # a frame that is held is no other one

    @contextmanager
    def above(self, floor: FrameType) -> Iterator[None]:
        """Inside, functions are those that are called above this frame, except for the first."""
        before = self._floor, self._active
        self._floor, self._active = floor, []
        try:
            yield
        finally:
            self._floor, self._active = before

    @contextmanager
    def scope(self, frame: FrameType | None) -> Iterator[None]:
        """Nodes added inside this context belong to the functions that run at a frame."""
        f = self._builder
        outer = f.scope_path
        f.scope_path = self._path(frame)
        try:
            yield
        finally:
            f.scope_path = outer

    def _path(self, frame: FrameType | None) -> str:
        calls = []
        while frame is not None and frame is not self._floor:
            if is_users(frame):
                calls.append(frame)
            frame = frame.f_back
        path = self._builder.scope_path
        if frame is None:  # not called by the traced function
            return path
        inner = [call for call in reversed(calls[:-1]) if not call.f_code.co_name.startswith("<")]
        active, self._active = self._active, []
        for i, call in enumerate(inner[:DEEPEST]):
            if i < len(active) and active[i][0] is call:
                path = active[i][1]
            else:
                active = []
                path = self._builder.calls.numbered(self._name(call, path), path)
            self._active.append((call, path))
        return path

    def _name(self, frame: FrameType, outer: str) -> str:
        """The name of the function; of a call of an object, where that is among the parameters."""
        code = frame.f_code
        if code.co_name != "__call__" or not code.co_argcount:
            return code.co_name
        called = frame.f_locals.get(code.co_varnames[0])
        return self._paths.get(id(called), "") or type(called).__name__
