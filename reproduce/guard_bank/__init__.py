"""The closed loop: runs that meet a fault, with and without a guard, and what each remedy saves."""
