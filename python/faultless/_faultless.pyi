from types import TracebackType
from typing import Any, Literal, SupportsIndex, Unpack, final

from numpy.typing import ArrayLike, DTypeLike, NDArray

from ._arrays import LikeOrder, Options, Order, Shape

__all__ = [
    "Background",
    "Block",
    "Region",
    "RegionError",
    "__version__",
    "_check_options",
    "_needs_sigbus",
    "counter",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "release_reserved",
    "reserve",
    "reserved",
    "set_speculative",
    "zeros",
    "zeros_like",
]

__version__: str

_Delivery = Literal["best", "thread", "kernel", "signal", "direct"]

class RegionError(OSError): ...

@final
class Background:
    @property
    def bytes(self) -> int: ...
    @property
    def ready(self) -> int: ...
    @property
    def done(self) -> bool: ...
    def wait(self) -> int: ...
    def cancel(self) -> None: ...

@final
class Block:
    def __new__(
        cls,
        length: SupportsIndex,
        *,
        delivery: _Delivery = "best",
        window: tuple[SupportsIndex, SupportsIndex] | None = None,
        huge_pages: bool = True,
        handlers: SupportsIndex = 1,
        budget: SupportsIndex | None = None,
        zeroed: bool = True,
        events: bool = False,
    ) -> Block: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def delivery(self) -> Literal["thread", "kernel", "signal", "direct"]: ...
    @property
    def serves_system_calls(self) -> bool: ...
    @property
    def address(self) -> int: ...
    def populate(self) -> None: ...

@final
class Region:
    def __new__(
        cls,
        length: SupportsIndex,
        *,
        delivery: _Delivery = "best",
        window: tuple[SupportsIndex, SupportsIndex] | None = None,
        huge_pages: bool = True,
        handlers: SupportsIndex = 1,
        budget: SupportsIndex | None = None,
        zeroed: bool = True,
        events: bool = False,
    ) -> Region: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...
    def __enter__(self) -> Region: ...
    def __exit__(
        self,
        _type: type[BaseException] | None,
        _value: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def delivery(self) -> Literal["thread", "kernel", "signal", "direct"]: ...
    @property
    def serves_system_calls(self) -> bool: ...
    @property
    def address(self) -> int: ...
    @property
    def present(self) -> int: ...
    def counter(self, name: str) -> int: ...
    def populate(self, start: SupportsIndex = 0, stop: SupportsIndex | None = None) -> None: ...
    def populate_in_background(
        self, start: SupportsIndex = 0, stop: SupportsIndex | None = None
    ) -> Background: ...
    def advise(
        self,
        start: SupportsIndex,
        stop: SupportsIndex,
        advice: Literal["normal", "random", "huge", "nohuge", "dontneed"],
    ) -> None: ...
    def protect(self, start: SupportsIndex, stop: SupportsIndex, rights: Literal["none", "r", "rw"]) -> None: ...

def zeros(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]: ...
def empty(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]: ...
def ones(shape: Shape, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]) -> NDArray[Any]: ...
def full(
    shape: Shape, fill_value: Any, dtype: DTypeLike | None = None, order: Order = "C", **options: Unpack[Options]
) -> NDArray[Any]: ...
def zeros_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]: ...
def empty_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]: ...
def ones_like(
    prototype: ArrayLike,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]: ...
def full_like(
    prototype: ArrayLike,
    fill_value: Any,
    dtype: DTypeLike | None = None,
    order: LikeOrder = "K",
    subok: bool = True,
    shape: Shape | None = None,
    **options: Unpack[Options],
) -> NDArray[Any]: ...
def counter(name: str) -> int: ...
def set_speculative(on: bool) -> None: ...
def reserve(bytes: SupportsIndex) -> Background: ...
def reserved() -> int: ...
def release_reserved() -> int: ...
def _check_options(
    *,
    delivery: _Delivery = "best",
    window: tuple[SupportsIndex, SupportsIndex] | None = None,
    huge_pages: bool = True,
    handlers: SupportsIndex = 1,
    budget: SupportsIndex | None = None,
    events: bool = False,
) -> None: ...
def _needs_sigbus() -> bool: ...
