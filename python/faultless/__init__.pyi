from typing import Any, Literal, Sequence, Union

import numpy as np
import numpy.typing as npt

from ._faultless import Background as Background
from ._faultless import Region as Region
from ._faultless import RegionError as RegionError
from ._faultless import counter as counter
from ._faultless import release_reserved as release_reserved
from ._faultless import reserve as reserve
from ._faultless import reserved as reserved
from ._faultless import set_speculative as set_speculative

Shape = Union[int, Sequence[int]]
Order = Literal["C", "F"]

def empty(
    shape: Shape, dtype: npt.DTypeLike = ..., order: Order = ..., **options: Any
) -> np.ndarray[Any, np.dtype[Any]]: ...
def zeros(
    shape: Shape, dtype: npt.DTypeLike = ..., order: Order = ..., **options: Any
) -> np.ndarray[Any, np.dtype[Any]]: ...
def full(
    shape: Shape, fill_value: Any, dtype: npt.DTypeLike = ..., order: Order = ..., **options: Any
) -> np.ndarray[Any, np.dtype[Any]]: ...
