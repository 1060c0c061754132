"""Time as it comes in through constructors: durations are monotonic, dates are wall clock."""

import time
from collections.abc import Callable

Monotonic = Callable[[], float]
WallClock = Callable[[], float]

monotonic: Monotonic = time.monotonic
wall: WallClock = time.time
