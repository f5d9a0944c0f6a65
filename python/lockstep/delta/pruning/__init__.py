"""Which files and rows a condition may be about: predicates, sets of values, and what a log says of a file."""
