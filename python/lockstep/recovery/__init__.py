"""What was, brought back: dropped tables, older database versions, and what one transaction changed."""
