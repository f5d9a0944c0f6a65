"""Tables that a lake did not make: taking them in where they are, and giving tables back."""
