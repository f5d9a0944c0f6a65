"""What a transaction sees and what it did, until COMMIT or ROLLBACK. Values only: nothing here does I/O."""
