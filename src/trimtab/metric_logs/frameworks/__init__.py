"""Key tables of trainers, one module each, and the choice of the one that fits a log."""
