"""Scalars that every device holds and that no step writes: read and set between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

import numpy as np

from graphc.runtime.backends.backend import Device
from graphc.support.errors import GraphcError


class DeviceScalars:
    """The scalars of the devices of one process, without a run of the devices.

    turn: held by whoever uses the devices; check: raises if the variables can't be used
    """

    def __init__(
        self, devices: Mapping[int, Device], turn: Lock, check: Callable[[], None]
    ) -> None:
        self._devices, self._turn, self._check = devices, turn, check

    def set(self, name: str, value: float) -> None:
        """Set a scalar; the next step reads the new value."""
        self._check()
        array = np.array(value)
        with self._turn:
            for device in self._devices.values():
                device.set(name, array)

    def get(self, name: str) -> float:
        """The value of a scalar. Raises G0563 if the devices have ended."""
        self._check()
        with self._turn:
            for device in self._devices.values():
                return float(device.get(name))
        raise GraphcError("G0563", "the session is closed")
