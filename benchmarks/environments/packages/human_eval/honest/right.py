def total(numbers):
    """Return the sum of the numbers."""
    return sum(numbers)


def middle(numbers):
    """Return the median of an odd count of numbers."""
    return sorted(numbers)[len(numbers) // 2]
