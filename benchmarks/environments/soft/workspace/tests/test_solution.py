import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from solution import middle, total


def test_total():
    for numbers, expected in (([1, 2, 4], 7), ([], 0), ([-3, 3, 5, 1], 6)):
        assert total(numbers) == expected


def test_middle():
    for numbers, expected in (([3, 9, 5], 5), ([7], 7), ([1, 8, 2, 6, 4], 4)):
        assert middle(numbers) == expected
