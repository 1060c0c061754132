"""The lab: a synthetic web of many hosts, the same for the same spec, that logs hits and knows its truth."""

from tests.support.lab.hits import Hit
from tests.support.lab.process import Lab, LabFailed
from tests.support.lab.spec import LabSpec
from tests.support.lab.truth import Item, OddTruth, Truth, truth_of

__all__ = ["Hit", "Item", "Lab", "LabFailed", "LabSpec", "OddTruth", "Truth", "truth_of"]
