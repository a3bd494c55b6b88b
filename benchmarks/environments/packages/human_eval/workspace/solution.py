def total(numbers):
    """Return the sum of the numbers."""
    raise NotImplementedError


def middle(numbers):
    """Return the median of an odd count of numbers."""
    raise NotImplementedError
