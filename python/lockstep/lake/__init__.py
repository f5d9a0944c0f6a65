"""A lake as one process sees it: the timeline, and the Delta logs of its tables kept in step with it."""
