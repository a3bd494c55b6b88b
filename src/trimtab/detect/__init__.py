"""Turn readings into alarms and a verdict: rules, the alarm log, the false-alarm budget."""
