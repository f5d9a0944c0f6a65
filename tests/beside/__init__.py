"""Writers of several kinds that hammer the same adopted tables, some of them killed, and the judge of what is left."""
