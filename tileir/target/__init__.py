"""Hardware facts of the supported chips as data, each with its source and evidence class."""

from tileir.target.load import get, names
from tileir.target.model import Fact, LdsAccess, Mfma, Product, Target, UnknownTarget
from tileir.target.timing import TimingModel, packs_under_products, timing_model

__all__ = [
    "Fact",
    "LdsAccess",
    "Mfma",
    "Product",
    "Target",
    "TimingModel",
    "UnknownTarget",
    "get",
    "names",
    "packs_under_products",
    "timing_model",
]
