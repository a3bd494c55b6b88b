"""Episodes, turns and tool calls: the record that every reader makes."""
