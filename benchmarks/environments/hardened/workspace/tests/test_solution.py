"""Examples for the agent. The verifier has cases of its own."""

from solution import total


def test_total():
    assert total([1, 2, 4]) == 7
