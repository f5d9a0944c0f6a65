"""What tests share: stores that fail on demand, and the like."""
