"""COMMIT, and what else changes the lake: statements on their own, ROLLBACK, savepoints, announcements."""
