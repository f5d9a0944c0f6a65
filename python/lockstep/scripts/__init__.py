"""Files of SQL: their statements, what runs of them, and what they read and write."""
