"""Guard: what is done about an incident, with a record of every action. It knows no trainer and no torch."""
