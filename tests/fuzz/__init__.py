"""Random programs of all statements, in plain Delta and in Lockstep: `make fuzz`, tests/README.md."""
