"""The timeline: the format of its entries, the database that they add up to, and the log that they are appended to."""
