"""What a run does for the other ranks of its job: hands over steps, judges merged ones, relays decisions."""
